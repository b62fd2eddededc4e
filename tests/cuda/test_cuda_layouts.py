"""Draws on a CUDA device where indices, addresses, devices and streams are awkward."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from helpers.curand import curand_include
from helpers.draws import bank_at
from test_cuda_draws import CASES, draw, draw_into, keys_of, raw

import fastseed

pytestmark = pytest.mark.cuda

OPS = torch.ops.fastseed
NAME, PLACE = 0x670678FD, 3 | 2 << 24
SCOPE = torch.tensor([0x75C4F7B9DA5A41A6, 0xBB1B0B05A584A51E], dtype=torch.uint64)
POISON = 0x5A


def poisoned(count: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    memory = torch.full((count * dtype.itemsize,), POISON, dtype=torch.uint8, device=device)
    return memory.view(dtype)


def shifted(values: torch.Tensor, device: str, by: int = 1) -> torch.Tensor:
    """The same on the device, `by` elements behind an aligned address."""
    memory = torch.zeros(values.numel() + by, dtype=values.dtype, device=device)
    return memory[by:].view(values.shape).copy_(values)


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_draws_of_every_kind_write_to_any_address_and_no_other(name, dtype, device):
    """Rows of an odd length, so that they begin at every remainder of 16 bytes."""
    keys, length = keys_of(17), 1003
    here = draw(name, dtype, keys, (length,))
    for shift in (0, 1, 3, 8):
        memory = poisoned(shift + 17 * length + 19, dtype, device)
        out = memory[shift : shift + 17 * length].view(17, length)
        draw_into(name, out, shifted(keys, device))
        assert torch.equal(raw(out), raw(here))
        around = torch.cat([raw(memory[:shift]), raw(memory[shift + 17 * length :])])
        assert (around == POISON).all()


def test_positions_need_no_alignment(device):
    keys, positions = keys_of(9), torch.arange(9) * 2**52 + torch.arange(9)
    there = torch.zeros(9, 77, device=device)
    OPS.draw_normal(there, shifted(keys, device), shifted(positions, device), (), (), 0, 0.0, 1.0)
    assert torch.equal(raw(there), raw(fastseed.random.normal(bank_at(keys, positions), (77,))))


# ---------------------------------------------------------------- indices

LAYOUTS = [
    ([], [], 0),
    ([], [], 1),
    ([], [], 2**40 + 3),
    ([5, 7], [7, 1], 2),
    ([5, 7], [100, 1], 6),
    ([3, 4, 5], [1000, 51, 1], 3),
    ([6, 35], [1, 9], 0),
    ([4, 1000], [2**33 + 1, 1], 5),
    ([2, 1, 3, 2], [77, 5, 11, 2], 1),
    ([2, 2, 2, 2, 2, 2, 2, 3], [9001, 4001, 1501, 701, 301, 101, 31, 1], 7),
]


@pytest.mark.parametrize(("sizes", "strides", "offset"), LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.uint32, torch.uint64])
def test_layouts_are_those_of_the_cpu(sizes, strides, offset, dtype, device):
    length = 333
    for size in sizes:
        length = size if length == 333 else length * size
    found = []
    for place in ("cpu", device):
        keys = keys_of(3).to(place)
        out = torch.zeros(3, length, dtype=dtype, device=place)
        OPS.draw_bits(out, keys, None, sizes, strides, offset)
        found.append(raw(out))
        normal = torch.zeros(3, length, dtype=torch.float64, device=place)
        OPS.draw_normal(normal, keys, None, sizes, strides, offset, 0.0, 1.0)
        found.append(raw(normal))
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])


LARGE = {"bits": torch.uint32, "randn": torch.float16, "wide": torch.int64}


def room_for(count: int, dtype: torch.dtype) -> None:
    if torch.cuda.mem_get_info()[0] < count * dtype.itemsize + (1 << 30):
        pytest.skip(f"needs {count * dtype.itemsize >> 30} GB of device memory")


@pytest.mark.needs_cuda
@pytest.mark.parametrize("name", LARGE)
def test_one_row_of_more_than_2_to_the_31_values(name, device):
    n, dtype = 2**31 + 8195, LARGE[name]
    room_for(n, dtype)
    key = keys_of(1)[0]
    out = draw(name, dtype, key.to(device), (n,))
    fill = {"bits": fastseed.random.bits_, "randn": fastseed.random.normal_}.get(name)
    for start in (0, 2**31 - 4000, n - 4096):
        part = torch.empty(4096, dtype=dtype)
        shard = fastseed.random.Shard((n,), (start,))
        if fill is not None:
            fill(part, key, shard=shard)
        else:
            fastseed.random.randint_(part, key, -(2**62), 2**62 + 1, shard=shard)
        assert torch.equal(raw(out[start : start + 4096]), raw(part)), start


@pytest.mark.needs_cuda
def test_rows_of_more_than_2_to_the_31_values_together(device):
    n, length = 2**17 + 3, 2**14 + 5
    room_for(n * length, torch.float16)
    keys = keys_of(n)
    out = fastseed.random.uniform(keys.to(device), (length,), dtype=torch.float16)
    for row in (0, 2**17 - 45, n - 1):
        assert torch.equal(
            raw(out[row]), raw(fastseed.random.uniform(keys[row], length, dtype=out.dtype))
        )


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize("op", ["derive_keys", "derive_seeds"])
@pytest.mark.parametrize("n", [0, 1, 5, 511, 512, 513, 5000])
@pytest.mark.parametrize("start", [0, 7, 2**32 - 300, 5 << 40 | 2**32 - 1])
def test_keys_of_the_operators_are_those_of_the_cpu(op, n, start, device):
    """Across 2**32, at aligned and other addresses."""
    tail = (2,) if op == "derive_keys" else ()
    here = torch.zeros(n, *tail, dtype=torch.uint64)
    words = SCOPE.view(torch.int64).tolist()
    getattr(OPS, op)(here, *words, NAME, PLACE, start)
    for shift in (0, 1):
        memory = torch.full((here.numel() + 4,), 7, dtype=torch.int64, device=device)
        out = memory[shift : shift + here.numel()].view(torch.uint64).view(n, *tail)
        getattr(OPS, op)(out, *words, NAME, PLACE, start)
        assert torch.equal(raw(out), raw(here)), shift
        assert (memory[:shift] == 7).all() and (memory[shift + here.numel() :] == 7).all()


@pytest.mark.needs_cuda
def test_derive_keys_writes_in_place_and_allocates_nothing(device):
    s = fastseed.Seeder(42, rank=3, world_size=8)
    out = torch.zeros(100_000, 2, dtype=torch.uint64, device=device)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    assert s.derive_keys("x", 100_000, task=1, out=out) is out
    assert torch.cuda.max_memory_allocated() == held
    assert torch.equal(out.cpu(), s.derive_keys("x", 100_000, task=1))


# ---------------------------------------------------------------- devices, streams, fills


@pytest.mark.needs_cuda
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


@pytest.mark.needs_cuda
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


@pytest.mark.parametrize("with_tensor", [False, True])
def test_fills_of_strided_tensors_with_keys_of_any_device(with_tensor, device):
    key = keys_of(1)[0].to(device if with_tensor else "cpu")
    for dtype in (torch.float16, torch.float64):
        there = torch.zeros(9, 50, 20, dtype=dtype, device=device)
        here = torch.zeros(9, 50, 20, dtype=dtype)
        for tensor in (there, here):
            fastseed.random.normal_(tensor.permute(2, 0, 1)[::3], key)
        assert torch.equal(raw(there), raw(here)) and (here != 0).any()


# ---------------------------------------------------------------- cuRAND


@pytest.mark.needs_cuda
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
