"""Draws on a CUDA device: the bits of the CPU, whatever the shape, the address or the stream."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.draws import CALLS, bank_at, each_call

import fastseed
from fastseed.random import distributions

pytestmark = pytest.mark.cuda

REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DRAWS = {  # a distribution, its dtypes, its parameters
    "rand": ("uniform", REALS, {"low": -1.5, "high": 2.0}),
    "unit": ("uniform", REALS, {"low": 0.0, "high": 1.0}),
    "randn": ("normal", REALS, {"mean": 0.5, "std": 3.0}),
    "exponential": ("exponential", REALS, {"rate": 1.5}),
    "trunc_normal": ("trunc_normal", REALS, {"mean": 0.0, "std": 1.0, "a": -1.0, "b": 4.0}),
    "bernoulli": ("bernoulli", (torch.bool, torch.uint8, *REALS), {"p": 0.3}),
    "randint": (
        *("randint", (torch.uint8, torch.int32, torch.int64)),
        {"low": 3, "high": 250},
    ),
    "half of the words rejected": ("randint", (torch.int64,), {"low": -5, "high": 2**31}),
    "wide": ("randint", (torch.int64,), {"low": -(2**62), "high": 2**62 + 1}),
    "bits": ("bits", (torch.uint32, torch.uint64), {}),
}
CASES = [(name, dtype) for name, (_, dtypes, _) in DRAWS.items() for dtype in dtypes]


def keys_of(n: int) -> torch.Tensor:
    return fastseed.Seeder(42, rank=0, world_size=1).derive_keys("draws", n, task=1)


def draw(name: str, dtype: torch.dtype, keys: Any, shape: Any) -> torch.Tensor:
    function, _, parameters = DRAWS[name]
    drawn: torch.Tensor = getattr(fastseed.random, function)(
        keys, shape=shape, dtype=dtype, **parameters
    )
    return drawn


def draw_into(name: str, out: torch.Tensor, keys: torch.Tensor) -> None:
    function, _, parameters = DRAWS[name]
    made = getattr(distributions, function)(name, out.dtype, **parameters)
    made.op(out, keys, None, (), (), 0, *made.parameters)


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes, so that NaN payloads and signed zeros count."""
    return tensor.cpu().contiguous().view(torch.uint8)


@pytest.mark.parametrize(("name", "dtype"), CASES)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (8,), (1000,), (1024,), (37, 129)])
@pytest.mark.parametrize("n", [0, 1, 2, 333])
def test_draws_have_the_bits_of_the_cpu(name, dtype, shape, n, device):
    keys = keys_of(n)
    bank = bank_at(keys, torch.arange(n, dtype=torch.int64) * 5 + (2**33 - 20))
    twin = bank_at(keys.to(device), bank.positions.to(device))
    for streams, others in ((keys, keys.to(device)), (bank, twin)):
        here, there = draw(name, dtype, streams, shape), draw(name, dtype, others, shape)
        assert there.device.type == device and there.shape == here.shape
        assert torch.equal(raw(there), raw(here))


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("shift", range(1, 9))
def test_draws_write_to_any_address_and_no_other(dtype, shift, device):
    memory = torch.full((3000,), 7.0, dtype=dtype, device=device)
    out = memory[shift : shift + 2000].view(4, 500)
    draw_into("randn", out, keys_of(4).to(device))
    assert torch.equal(raw(out), raw(draw("randn", dtype, keys_of(4), (500,))))
    assert (memory[:shift] == 7).all() and (memory[shift + 2000 :] == 7).all()


@pytest.mark.parametrize(
    "fill", ["normal_", "uniform_", "exponential_", "trunc_normal_", "bernoulli_"]
)
@pytest.mark.parametrize("dtype", REALS)
def test_parts_have_the_bits_of_the_whole(fill, dtype, device):
    whole = torch.empty(10, 7, 33, dtype=dtype)
    getattr(fastseed.random, fill)(whole, 12345)
    for size, offsets in (
        ((4, 7, 33), (3, 0, 0)),
        ((10, 2, 33), (0, 5, 0)),
        ((3, 4, 5), (7, 1, 9)),
    ):
        part = torch.empty(size, dtype=dtype, device=device)
        shard = fastseed.random.Shard(whole.shape, offsets)
        getattr(fastseed.random, fill)(part, 12345, shard=shard)
        there = tuple(slice(o, o + s) for o, s in zip(offsets, size, strict=True))
        assert torch.equal(raw(part), raw(whole[there]))


@each_call
def test_fills_of_every_kind_have_the_bits_of_the_cpu(name, dtype, device):
    fill = getattr(fastseed.random, f"{name}_")
    whole = fill(torch.zeros(50, 40, 30, dtype=dtype), 12345, **CALLS[name, dtype])
    part = torch.zeros(20, 30, 10, dtype=dtype, device=device)
    shard = fastseed.random.Shard((50, 40, 30), (3, 4, 5))
    assert fill(part, 12345, shard=shard, **CALLS[name, dtype]) is part
    assert torch.equal(raw(part), raw(whole[3:23, 4:34, 5:15]))


@pytest.mark.needs_cuda
def test_draws_of_more_than_2_to_the_31_values(device):
    n = 2**31 + 8193
    if torch.cuda.mem_get_info()[0] < 3 * n:
        pytest.skip("needs 6.5 GB of device memory")
    key = keys_of(1)[0].to(device)
    out = fastseed.random.bernoulli(key, (n,), 0.5, dtype=torch.uint8)
    shard = fastseed.random.Shard((n,), (n - 8192,))
    tail = torch.empty(8192, dtype=torch.uint8)
    fastseed.random.bernoulli_(tail, key.cpu(), 0.5, shard=shard)
    assert torch.equal(out[-8192:].cpu(), tail)


def test_keys_are_derived_on_the_device(device):
    s = fastseed.Seeder(42, rank=3, world_size=8)
    where = {"name": "x", "task": 1, "epoch": 7, "start": 2**33 - 5}
    for n in (0, 1, 2, 255, 256, 257, 100_003):
        keys = torch.empty(n, 2, dtype=torch.uint64, device=device)
        assert torch.equal(s.derive_keys(n=n, **where, out=keys).cpu(), s.derive_keys(n=n, **where))
        memory = torch.zeros(n + 1, dtype=torch.uint64, device=device)
        s.derive_seeds(n=n, **where, out=memory[1:])
        assert torch.equal(memory[1:].cpu(), s.derive_seeds(n=n, **where))
        assert memory[0].item() == 0
        every = torch.zeros(2 * n, 2, dtype=torch.uint64, device=device)[::2]
        assert s.derive_keys(n=n, **where, out=every) is every
        assert torch.equal(every.cpu(), keys.cpu())


@pytest.mark.needs_cuda
def test_draws_run_on_the_current_stream(device):
    keys = keys_of(64).to(device)
    out = torch.empty(64, 4096, device=device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        out.fill_(-1.0)
        draw_into("unit", out, keys)
    side.synchronize()
    assert torch.equal(out.cpu(), fastseed.random.uniform(keys_of(64), (4096,)))


def test_bank_moves_on_as_on_the_cpu(device):
    banks = [fastseed.random.StreamBank(50, "b", place) for place in ("cpu", device)]
    seeds = torch.arange(50, dtype=torch.int64) - 25
    drawn = []
    for bank in banks:
        bank.reseed_from_seeds(seeds.to(bank.device))
        rows = torch.tensor([3, 1, 49], device=bank.device)
        mask = (torch.arange(50) % 3 == 0).to(bank.device)
        drawn.append(
            (
                fastseed.random.uniform(bank, 5),
                fastseed.random.normal(bank[rows], (3, 3)),
                fastseed.random.randint(bank[mask], (7,), 0, 10),
                fastseed.random.exponential(bank, 2, dtype=torch.float64),
                bank.keys,
                bank.positions,
            )
        )
    for here, there in zip(*drawn, strict=True):
        assert torch.equal(raw(here), raw(there))
