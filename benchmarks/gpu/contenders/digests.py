"""Digests on the device, beside a sum that reads the same bytes and writes none."""

from __future__ import annotations

import functools

import torch

from fastseed.debug import tree_digest

from ...case import expect
from .. import targets
from ..bench_device import BenchDevice
from ..timing import Call, Entry, WallClock
from . import Group


def _digest(bench: BenchDevice, case: str, tensors: int, n: int) -> list[Entry]:
    """Digest tensors of n float32; both sides end with the answer on the host."""
    count, length = (tensors, bench.size(n)) if tensors == 1 else (bench.size(tensors), n)
    clock = WallClock(torch.cuda.synchronize if bench.device == "cuda" else lambda: None)
    sets = [
        {str(i): torch.randn(length, device=bench.device) for i in range(count)}
        for _ in range(bench.buffers(4 * length * count))
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
        Entry(case, targets.FASTSEED, "digest", calls, check, clock, size),
        Entry(case, targets.SUM, "one tensor", sums, check_sums, clock, size),
    ]


def _sum(tensor: torch.Tensor) -> float:
    return float(tensor.sum())


def fastseed_digests_groups(bench: BenchDevice) -> list[Group]:
    """One large tensor, and a thousand in one launch."""
    return [
        lambda: _digest(bench, "digest/cuda/1e8", 1, 10**8),
        lambda: _digest(bench, "digest/cuda/1000x1e5", 1000, 10**5),
    ]
