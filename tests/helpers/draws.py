"""Every random function in every dtype, with the values of the NumPy reference; and a bank."""

from typing import Any

import numpy as np
import pytest
import torch

import fastseed
from fastseed._backend.reference import draws as reference
from fastseed.random import StreamBank, distributions

REALS = distributions.REALS
KINDS = {d: str(d).removeprefix("torch.") for d in REALS}
BELOW_ONE = {d: 1 - 2.0**-n for d, n in zip(REALS, (11, 8, 24, 53), strict=True)}
# (low, how many), such that a quarter of the words is rejected
RANGES = {torch.uint8: (3, 200), torch.int32: (-(2**31), 3 << 30), torch.int64: (-(2**63), 3 << 62)}

CALLS: dict[tuple[str, torch.dtype], dict[str, Any]] = {
    **{("uniform", d): {} for d in REALS},
    **{("normal", d): {"mean": 1.0, "std": 2.0} for d in REALS},
    **{("exponential", d): {"rate": 2.0} for d in REALS},
    **{("trunc_normal", d): {"mean": 1.0, "std": 2.0, "a": -3.0, "b": 2.0} for d in REALS},
    **{("bernoulli", d): {"p": 0.75} for d in (torch.bool, torch.uint8, *REALS)},
    **{("randint", d): {"low": a, "high": a + n} for d, (a, n) in RANGES.items()},
    **{("bits", d): {} for d in (torch.uint32, torch.uint64)},
}
each_call = pytest.mark.parametrize(
    ("name", "dtype"), list(CALLS), ids=[f"{n}-{str(d)[6:]}" for n, d in CALLS]
)


def words(name: str, dtype: torch.dtype) -> int:
    """Return how many words of a stream a value of :data:`CALLS` takes."""
    wide = dtype in (torch.float64, torch.uint64, torch.int64)
    return 2 if wide and name != "bernoulli" else 1


def expected(name, dtype, keys, count, start=0, position=None) -> torch.Tensor:
    """Return the values ``start``, ``start + 1``, ... of a call for each key, (n, count)."""
    at = np.zeros(len(keys), np.uint64) if position is None else position.numpy().view(np.uint64)
    where = (keys.numpy(), at, start, count)
    kind = KINDS.get(dtype, "")
    if name == "uniform":
        found = reference.uniform(*where, kind, 1.0, 0.0, BELOW_ONE[dtype])
    elif name == "normal":
        found = reference.normal(*where, kind, 1.0, 2.0)
    elif name == "exponential":
        found = reference.exponential(*where, kind, 0.5)
    elif name == "trunc_normal":
        made = distributions.trunc_normal(name, dtype, 1.0, 2.0, -3.0, 2.0)
        found = reference.trunc_normal(*where, kind, *made.parameters)
    elif name == "bernoulli":
        found = reference.bernoulli(*where, 3 << 30)
    elif name == "randint":
        found = reference.randint(*where, *RANGES[dtype])
    else:
        found = reference.bits(*where, words(name, dtype))
    return torch.from_numpy(found).to(dtype)


def keys_of(n: int) -> torch.Tensor:
    """Return keys on the CPU."""
    return fastseed.Seeder(42, rank=0, world_size=1).derive_keys("draws", n, task=1)


def bank_of(n: int, name: str = "b", device: str = "cpu", **where: int) -> StreamBank:
    """Return a bank at task 1, epoch 7, step 9 of rank 3 of 8."""
    fastseed.init(42, **{"rank": 3, "world_size": 8, **where})
    bank = StreamBank(n, name, device)
    bank.reseed(1, 7, 9)
    return bank


def bank_at(keys: torch.Tensor, positions: torch.Tensor) -> StreamBank:
    """Return a bank whose streams have these keys and positions."""
    bank = StreamBank(len(keys), "at", keys.device)
    bank.reseed_from_seeds(torch.zeros(len(keys), dtype=torch.int64))
    bank.keys.copy_(keys)
    bank.positions.copy_(positions)
    return bank


def contents(bank: StreamBank) -> tuple[object, ...]:
    return bank.keys.tolist(), bank.positions.tolist(), repr(bank)
