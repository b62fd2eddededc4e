"""The order of an epoch, and what a loader asks for."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils.data import DistributedSampler

import fastseed
from fastseed.data import ShuffleSampler

from ..case import Case, Contest, Side, expect

MASTER, TASK, EPOCH = 42, 1, 7


def some_sampler(n: int, **more: Any) -> ShuffleSampler:
    """At an epoch."""
    fastseed.init(MASTER, 1, 0)
    sampler = ShuffleSampler(n, **more)
    sampler.set_scope(TASK, EPOCH)
    return sampler


def whole_epoch(n: int, _: str) -> Contest:
    """Into memory that exists, both."""
    out = torch.zeros(n, dtype=torch.int64)
    sampler = some_sampler(n)

    def is_order(side: Side) -> None:
        out.fill_(0)
        side.run()
        seen = torch.zeros(n, dtype=torch.bool)
        seen[out] = True
        expect(bool(seen.all()), f"{side.label} has every number once")

    def check(side: Side) -> None:
        is_order(side)
        expect(all(int(out[i]) == sampler.index(i) for i in (0, n // 2, n - 1)), "our order")

    side = Side("ShuffleSampler", "sampler.indices(out=out)", {"sampler": sampler, "out": out})
    names = {"torch": torch, "n": n, "out": out}
    theirs = Side("torch.randperm", "torch.randperm(n, out=out)", names)
    return Contest(side, check, {"torch.randperm": lambda: [theirs]}, is_order)


def _is_share(side: Side) -> None:
    found: list[int] = list(iter(side.names["sampler"]))
    expect(len(found) == len(side.names["sampler"]), f"as many as {side.label} says")
    expect(len(set(found)) == len(found), f"{side.label} repeats none")
    expect(all(type(index) is int for index in found[:99]), "indices are ints")


def iteration(n: int, world_size: int, _: str) -> Contest:
    """All indices of one rank, as ints."""
    sampler = some_sampler(n, rank=0, world_size=world_size)
    other = DistributedSampler(range(n), world_size, 0, seed=MASTER)  # type: ignore[arg-type]
    ours, theirs = (
        Side(type(each).__name__, "for index in sampler: pass", {"sampler": each})
        for each in (sampler, other)
    )
    return Contest(ours, _is_share, {"DistributedSampler": lambda: [theirs]}, _is_share)


def cases() -> list[Case]:
    """The rows of this module."""
    return [
        *(
            Case("sampler.order", size, {"torch.randperm": target},
                 functools.partial(whole_epoch, n), headline=True)
            for size, n, target in (("1e6", 10**6, None), ("1e7", 10**7, 1))
        ),
        Case("sampler.iterate", "1e6-of-8", {"DistributedSampler": None},
             functools.partial(iteration, 10**6, 8)),
    ]  # fmt: skip
