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

from ..baselines import torch_keys
from ..case import Case, Contest, Side, Ways, expect

N = 64
KEY = 0x81B1E1C0FFEE0DD5_F00DCAFE12345678
STATELESS = "torch.func._random"


def _names(device: str) -> dict[str, Any]:
    fastseed.init(42, rank=0, world_size=1)
    key = torch.tensor([KEY & 2**64 - 1, KEY >> 64], dtype=torch.uint64, device=device)
    return {
        "torch": torch, "random": fastseed.random, "fastseed": fastseed,
        "key": KEY if device == "cpu" else key, "device": device,
        "x": torch.empty(N, device=device), "y": torch.empty(N, device=device),
        "ones": torch.ones(N, device=device),
    }  # fmt: skip


def call(statement: str, label: str, baseline: str, wanted: str, device: str) -> Contest:
    """A statement beside torch's; ``wanted`` makes the same values another way."""
    names = _names(device)

    def check(side: Side) -> None:
        found, expected = side.run(), eval(wanted, names)
        same = torch.equal if isinstance(expected, torch.Tensor) else operator.eq
        expect(type(found) is type(expected) and same(found, expected), "the values")

    theirs = baseline.format("" if device == "cpu" else ", device=device")
    beside: dict[str, Ways] = {label: lambda: [Side(label, theirs, names)]}
    if statement == HEADLINE:
        beside[STATELESS] = lambda: [torch_keys.side(device, "stateless.normal(key, 64)")]
    return Contest(Side("fastseed", statement, names), check, beside)


HEADLINE = "random.normal(key, (64,))"
# operation, statement, torch's call, the same values made another way
CALLS = (
    ("random.normal", HEADLINE, "torch.randn(64)", "torch.randn(64{})", "random.normal_(y, key)"),
    ("debug.digest", "fastseed.debug.digest(ones)", "ones.sum().item()", "ones.sum().item()",
     "fastseed.debug.digest(ones.clone())"),
)  # fmt: skip


def cases() -> list[Case]:
    """The calls whose cost is mostly their own."""
    rows = []
    for name, statement, label, baseline, wanted in CALLS:
        is_headline = statement == HEADLINE
        beside: dict[str, float | None] = {label: 1 / 8}
        build = functools.partial(call, statement, label, baseline, wanted)
        rows.append(
            Case(name, str(N), beside | ({STATELESS: None} if is_headline else {}), build,
                 devices=("cpu", "cuda"), headline=is_headline)
        )  # fmt: skip
    return rows
