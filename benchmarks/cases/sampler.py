"""The order of an epoch: its first index, all of it, and what a loader asks for."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils.data import DistributedSampler

import fastseed
from fastseed.data import ShuffleSampler

from .. import machine
from ..case import Case, Contest, Side, expect

MASTER, TASK, EPOCH = 42, 1, 7
BILLION = 10**9


def some_sampler(n: int, **more: Any) -> ShuffleSampler:
    """At an epoch."""
    fastseed.init(MASTER, 1, 0)
    sampler = ShuffleSampler(n, **more)
    sampler.set_scope(TASK, EPOCH)
    return sampler


def _is_order(numbers: torch.Tensor, n: int, what: str) -> None:
    seen = torch.zeros(n, dtype=torch.bool)
    seen[numbers] = True
    expect(len(numbers) == n and bool(seen.all()), f"{what} has every number once")


# ---------------------------------------------------------------------------- the first index


def _first_of_randperm(contest: Contest) -> None:
    sampler = contest.fastseed.names["sampler"]
    expect(contest.fastseed.run() == sampler.index(0), "the first index")
    for baseline in contest.baselines:
        expect(0 <= baseline.run() < baseline.names["n"], "torch's first index")


def first_index(n: int, by_torch: int) -> Contest:
    """Ours of n; torch's, which has to make all of them, of as many as a run has time for."""
    names = {"sampler": some_sampler(n), "next": next, "iter": iter}
    side = Side("ShuffleSampler", "next(iter(sampler))", names)
    baseline = Side("torch.randperm", "int(torch.randperm(n)[0])", {"torch": torch, "n": by_torch})
    return Contest(side, (baseline,), _first_of_randperm)


def _any_index(contest: Contest) -> None:
    sampler, n = contest.fastseed.names["sampler"], contest.fastseed.names["sampler"].n
    i, j = contest.fastseed.names["i"], contest.fastseed.run()
    expect(j == int(sampler.indices(i, i + 1)), "an index of many")
    expect(0 <= contest.baselines[0].run() < n, "a random number")


def one_index(n: int) -> Contest:
    """Any index of an epoch; the baseline draws a number, which is no part of an order."""
    side = Side("index", "sampler.index(i)", {"sampler": some_sampler(n), "i": n // 3})
    baseline = Side("torch.randint", "int(torch.randint(n, (1,)))", {"torch": torch, "n": n})
    return Contest(side, (baseline,), _any_index)


# ---------------------------------------------------------------------------- a whole epoch


def _whole(contest: Contest) -> None:
    out, n = contest.fastseed.names["out"], contest.fastseed.names["sampler"].n
    for side in (contest.fastseed, *contest.baselines):
        out.fill_(0)
        side.run()
        _is_order(out, n, side.label)
    contest.fastseed.run()
    sampler = contest.fastseed.names["sampler"]
    expect(all(int(out[i]) == sampler.index(i) for i in (0, n // 2, n - 1)), "our order")


def whole_epoch(n: int, threads: int) -> Contest:
    """Into memory that exists, both."""
    out = torch.zeros(n, dtype=torch.int64)
    names = {"sampler": some_sampler(n), "out": out}
    side = Side("ShuffleSampler", "sampler.indices(out=out)", names, threads)
    others = {"torch": torch, "n": n, "out": out}
    baseline = Side("torch.randperm", "torch.randperm(n, out=out)", others, threads)
    return Contest(side, (baseline,), _whole)


# ---------------------------------------------------------------------------- iteration


def _sides_share(contest: Contest) -> None:
    for side in (contest.fastseed, *contest.baselines):
        found: list[int] = list(iter(side.names["sampler"]))
        expect(len(found) == len(side.names["sampler"]), f"as many as {side.label} says")
        expect(len(set(found)) == len(found), f"{side.label} repeats none")
        expect(all(type(index) is int for index in found[:99]), "indices are ints")


def iteration(n: int, world_size: int) -> Contest:
    """All indices of one rank, as ints."""
    names = {"sampler": some_sampler(n, rank=0, world_size=world_size)}
    others = {"sampler": DistributedSampler(range(n), world_size, 0, seed=MASTER)}
    statement = "for index in sampler: pass"
    return Contest(
        Side("ShuffleSampler", statement, names),
        (Side("DistributedSampler", statement, others),),
        _sides_share,
    )


# ---------------------------------------------------------------------------- the rows


def cases() -> list[Case]:
    """The rows of this module.

    ``torch.randperm(10**9)`` takes a minute and 8 GB: the baseline of the first row makes an order
    of a hundredth of that.
    """
    first = functools.partial(first_index, BILLION, BILLION // 100)
    all_cores = machine.cores()
    rows = [
        Case("sampler.first/cpu/1e9", "torch.randperm of 1e7", 100, first),
        Case("sampler.index/cpu/1e9", "torch.randint", None, functools.partial(one_index, BILLION)),
        Case("sampler.order/cpu/1e6", "torch.randperm", None,
             functools.partial(whole_epoch, 10**6, 1)),
        Case("sampler.order/cpu/1e7", "torch.randperm", 1,
             functools.partial(whole_epoch, 10**7, 1)),
        Case("sampler.order/cpu-all/1e7", "torch.randperm", 1,
             functools.partial(whole_epoch, 10**7, all_cores)),
        Case("sampler.iterate/cpu/1e6", "DistributedSampler", None,
             functools.partial(iteration, 10**6, 1)),
        Case("sampler.iterate/cpu/1e6-of-8", "DistributedSampler", None,
             functools.partial(iteration, 10**6, 8)),
    ]  # fmt: skip
    return rows
