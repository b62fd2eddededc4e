"""Digests on the device, beside a sum that reads the same bytes and writes none."""

from __future__ import annotations

import functools

import torch

from fastseed.debug import tree_digest

from ...case import expect
from .. import bars
from ..place import Place
from ..timing import Call, Entry, WallClock
from . import Group


def _digest(place: Place, case: str, tensors: int, n: int) -> list[Entry]:
    """Digest tensors of n float32; both sides end with the answer on the host."""
    count, length = (tensors, place.size(n)) if tensors == 1 else (place.size(tensors), n)
    clock = WallClock(torch.cuda.synchronize if place.device == "cuda" else lambda: None)
    sets = [
        {str(i): torch.randn(length, device=place.device) for i in range(count)}
        for _ in range(place.buffers(4 * length * count))
    ]
    flat = [torch.cat(list(one.values())) for one in sets]

    def check() -> None:
        for one in sets:
            there = tree_digest.digest(one)
            expect(there == tree_digest.digest({k: v.cpu() for k, v in one.items()}), "a digest")

    def check_sums() -> None:
        for one in flat:
            expect(bool(torch.isfinite(one.sum())), "a sum")

    size = 4 * length * count
    calls: list[Call] = [functools.partial(tree_digest.digest, one) for one in sets]
    sums: list[Call] = [functools.partial(_sum, one) for one in flat]
    return [
        Entry(case, bars.OURS, "digest", calls, check, clock, size),
        Entry(case, bars.SUM, "one tensor", sums, check_sums, clock, size),
    ]


def _sum(tensor: torch.Tensor) -> float:
    return float(tensor.sum())


def ours_digests_groups(place: Place) -> list[Group]:
    """One large tensor, and a thousand in one launch."""
    return [
        lambda: _digest(place, "digest/cuda/1e8", 1, 10**8),
        lambda: _digest(place, "digest/cuda/1000x1e5", 1000, 10**5),
    ]
