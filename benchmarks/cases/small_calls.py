"""What a call costs beside torch's own: 64 values, where the arguments are most of the work.

A target below 1 says how many times slower than torch a call may be: keys are derived and arguments
checked, which torch's generators need not.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

import fastseed

from ..case import Case, Contest, Side, expect

N = 64
KEY = 0x81B1E1C0FFEE0DD5_F00DCAFE12345678


def _names() -> dict[str, Any]:
    fastseed.init(42, rank=0, world_size=1)
    bank = fastseed.random.StreamBank(1, "small")
    bank.reseed(0)
    return {
        "torch": torch,
        "random": fastseed.random,
        "fastseed": fastseed,
        "debug": fastseed.debug,
        "bank": bank,
        "key": KEY,
        "x": torch.empty(N),
        "y": torch.empty(N),
        "ones": torch.ones(N),
    }


def _contest(statement: str, baseline: str, wanted: str) -> Contest:
    names = _names()

    def check(contest: Contest) -> None:
        """Compare with the same values made another way: one by one, or in place."""
        found = contest.fastseed.run()
        expected = eval(wanted, names)
        same = torch.equal if isinstance(expected, torch.Tensor) else operator.eq
        expect(type(found) is type(expected) and same(found, expected), "the values")

    sides = Side("fastseed", statement, names), Side("torch", baseline, names)
    return Contest(sides[0], (sides[1],), check)


# name, statement, torch's call, the same values made another way, how many times slower it may be
_CALLS = (
    (
        *("random.normal_", "random.normal_(x, key)", "x.normal_()"),
        *("random.normal(key, 64)", 15),
    ),
    (
        *("random.uniform_", "random.uniform_(x, key)", "x.uniform_()"),
        *("random.uniform(key, 64)", 15),
    ),
    (
        *("random.normal", "random.normal(key, (64,))", "torch.randn(64)"),
        *("random.normal_(y, key)", 8),
    ),
    (
        *("random.randint", "random.randint(key, (64,), 0, 10)", "torch.randint(0, 10, (64,))"),
        *("random.randint_(torch.empty(64, dtype=torch.int64), key, 0, 10)", 6),
    ),
    (
        *("bank.normal", "random.normal(bank, 64)", "torch.randn(64)"),
        *("random.normal(bank.keys, int(bank.positions))[:, -64:]", 8),
    ),
    (
        *("derive_seeds", "fastseed.derive_seeds('small', 8, task=0)", "torch.randn(64)"),
        "torch.tensor([fastseed.derive_seed('small', task=0, index=i) for i in range(8)], "
        "dtype=torch.uint64)",
        6,
    ),
    (
        *("debug.digest", "debug.digest(ones)", "ones.sum().item()"),
        *("debug.digest(ones.clone())", 8),
    ),
)


def cases() -> list[Case]:
    """The calls whose cost is mostly their own."""
    return [
        Case(
            f"{name}/cpu/{8 if name == 'derive_seeds' else N}",
            f"torch: {baseline}",
            1 / slower,
            functools.partial(_contest, statement, baseline, wanted),
        )
        for name, statement, baseline, wanted, slower in _CALLS
    ]
