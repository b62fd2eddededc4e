"""A pass over a dataset that costs nothing, without workers: what is left is the loader."""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data import DataLoader

import fastseed
from fastseed.data import Loader, per_sample

from ..case import Case, Contest, Side, expect

MASTER, N, BATCH = 42, 20_000, 64
PASS = "for batch in loader: pass"


class Indices:
    """Sample i is i."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> int:
        return index


def _check(contest: Contest) -> None:
    for side in (contest.fastseed, *contest.baselines):
        found = [int(index) for batch in side.names["loader"] for index in batch]
        expect(sorted(found) == list(range(N)) != found, f"{side.label} has every sample once")


def one_pass(has_own_numbers: bool) -> Contest:
    """A ``Loader`` against torch's loader, and torchdata's, which can resume too."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    fastseed.init(MASTER, 1, 0)
    fastseed.reseed(1, 0)
    data: Any = per_sample(Indices()) if has_own_numbers else Indices()
    side = Side("Loader", PASS, {"loader": Loader(data, BATCH, shuffle=True)})
    baselines = tuple(
        Side(kind.__name__, PASS, {"loader": kind(Indices(), BATCH, shuffle=True)})
        for kind in (DataLoader, StatefulDataLoader)
    )
    return Contest(side, baselines, _check)


def cases() -> list[Case]:
    """The rows of this module: each for 20,000 samples in batches of 64."""
    name = f"loader.pass/cpu/{N}"
    return [
        Case(name, "DataLoader", None, functools.partial(one_pass, False)),
        Case(f"{name}-per-sample", "DataLoader", None, functools.partial(one_pass, True)),
    ]
