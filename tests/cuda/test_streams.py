"""Streams, several devices and tensors that only a CUDA device holds; kernels of cuRAND."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from helpers.curand import curand_include
from helpers.draws import keys_of
from helpers.operator_calls import bits as raw

import fastseed
from fastseed._backend import native
from fastseed.digest.trees import digest
from fastseed.sampling import sample

pytestmark = pytest.mark.needs_cuda


def room_for(count: int, dtype: torch.dtype) -> None:
    if torch.cuda.mem_get_info()[0] < count * dtype.itemsize + (1 << 30):
        pytest.skip(f"needs {count * dtype.itemsize >> 30} GB of device memory")


def test_draws_run_on_the_current_stream(device):
    keys = keys_of(64).to(device)
    out = torch.empty(64, 4096, device=device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        out.fill_(-1.0)
        torch.ops.fastseed.draw_uniform(out, keys, None, (), (), 0, 1.0, 0.0, 1 - 2.0**-24)
    side.synchronize()
    assert torch.equal(out.cpu(), fastseed.random.uniform(keys_of(64), (4096,)))


def test_banks_work_on_the_current_stream(device):
    bank = fastseed.random.StreamBank(64, "b", device)
    twin = fastseed.random.StreamBank(64, "b")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        bank.keys.view(torch.int64).fill_(-1)  # not before the sleep is over; what follows, after
        bank.reseed_from_seeds(range(64))
        out = fastseed.random.normal(bank, 4096)
    side.synchronize()
    twin.reseed_from_seeds(range(64))
    assert torch.equal(raw(out), raw(fastseed.random.normal(twin, 4096)))
    assert torch.equal(raw(bank.positions), raw(twin.positions))


def test_another_stream(device):
    x = torch.zeros(1 << 24, device=device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(100):
            x += 1
        found = digest(x)
    assert found.value == digest(torch.full((1 << 24,), 100.0)).value


def test_draws_leave_the_current_device_as_it_was(device):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    current = torch.cuda.current_device()
    other = torch.device(device, (current + 1) % torch.cuda.device_count())
    keys = keys_of(40)
    bank = fastseed.random.StreamBank(40, "bank", other)
    bank.reseed_from_seeds(range(40))
    twin = fastseed.random.StreamBank(40, "bank")
    twin.reseed_from_seeds(range(40))
    filled = fastseed.random.normal_(torch.empty(999, device=other), 12345)
    for there, here in (
        (fastseed.random.normal(keys.to(other), (99,)), fastseed.random.normal(keys, (99,))),
        (fastseed.random.uniform(bank, 99), fastseed.random.uniform(twin, 99)),
        (filled, fastseed.random.normal_(torch.empty(999), 12345)),
    ):
        assert there.device == other and torch.equal(raw(there), raw(here))
    assert torch.cuda.current_device() == current


@pytest.mark.parametrize("name", ["bits", "normal", "randint"])
def test_one_row_of_more_than_2_to_the_31_values(name, device):
    n, key = 2**31 + 8195, keys_of(1)[0]
    dtype = {"bits": torch.uint32, "normal": torch.float16, "randint": torch.int64}[name]
    bounds = (-(2**62), 2**62 + 1) if name == "randint" else ()
    room_for(n, dtype)
    out = getattr(fastseed.random, name)(key.to(device), (n,), *bounds, dtype=dtype)
    for start in (0, 2**31 - 4000, n - 4096):
        part, shard = torch.empty(4096, dtype=dtype), fastseed.random.Shard((n,), (start,))
        getattr(fastseed.random, f"{name}_")(part, key, *bounds, shard=shard)
        assert torch.equal(raw(out[start : start + 4096]), raw(part)), start


def test_rows_of_more_than_2_to_the_31_values_together(device):
    n, length = 2**17 + 3, 2**14 + 5
    room_for(n * length, torch.float16)
    keys = keys_of(n)
    out = fastseed.random.uniform(keys.to(device), (length,), dtype=torch.float16)
    for row in (0, 2**17 - 45, n - 1):
        assert torch.equal(
            raw(out[row]), raw(fastseed.random.uniform(keys[row], length, dtype=out.dtype))
        )


def test_large_tensors(device):
    """More bytes than 2**32, and a sum that does not depend on how blocks share them."""
    there = torch.arange(2**29 + 12345, dtype=torch.int64, device=device)
    assert digest(there).value == digest(there.cpu()).value


def test_derive_keys_writes_in_place_and_allocates_nothing(device):
    s = fastseed.Seeder(42, rank=3, world_size=8)
    out = torch.zeros(100_000, 2, dtype=torch.uint64, device=device)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    assert s.derive_keys("x", 100_000, task=1, out=out) is out
    assert torch.cuda.max_memory_allocated() == held
    assert torch.equal(out.cpu(), s.derive_keys("x", 100_000, task=1))


def test_rows_without_a_token_are_minus_one(device):
    logits = torch.full((2, 5), -torch.inf, device=device)
    logits[1, 3] = torch.nan
    assert sample(logits, [1, 2], 0).tolist() == [-1, -1]


def test_a_curand_kernel_goes_on_at_a_banks_positions(tmp_path, device):
    """curand_init(lo, hi, position) on the device gives the words that the bank draws next."""
    nvcc, include = shutil.which("nvcc"), curand_include()
    if nvcc is None or include is None:
        pytest.skip("needs nvcc and curand_kernel.h")
    library = tmp_path / "curand_words.so"
    major, minor = torch.cuda.get_device_capability()
    flags = ["-shared", f"-arch=sm_{major}{minor}", "-Xcompiler", f"-fPIC,-idirafter,{include}"]
    source = Path(__file__).with_name("curand_words.cu")
    subprocess.run([nvcc, *flags, source, "-o", library], check=True)
    bank = fastseed.random.StreamBank(1000, "bank", device)
    bank.reseed_from_seeds(range(1000))
    fastseed.random.normal(bank[torch.arange(0, 1000, 3, device=device)], 5)
    fastseed.random.randint(bank, (3,), 0, 10**12)
    out = torch.zeros(1000, 50, dtype=torch.int32, device=device)
    call = ctypes.CDLL(str(library)).curand_words
    call.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    stream = torch.cuda.current_stream().cuda_stream
    pointers = (bank.keys.data_ptr(), bank.positions.data_ptr(), out.data_ptr())
    assert call(*pointers, 1000, 50, stream) == 0
    assert torch.equal(raw(out), raw(fastseed.random.bits(bank, 50)))


def test_the_kernel_is_there():
    assert native.has_cuda
