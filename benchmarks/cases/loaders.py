"""A pass over a dataset that costs nothing, without workers: what is left is the loader."""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data import DataLoader

import fastseed
from fastseed.data import Loader, per_sample

from ..case import Case, Contest, Side, Unavailable, expect

MASTER, N, BATCH = 42, 20_000, 64
PASS = "for batch in loader: pass"


class Indices:
    """Sample i is i."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> int:
        return index


def _check(side: Side) -> None:
    found = [int(index) for batch in side.names["loader"] for index in batch]
    expect(sorted(found) == list(range(N)) != found, f"{side.label} has every sample once")


def _side(kind: Any) -> list[Side]:
    return [Side(kind.__name__, PASS, {"loader": kind(Indices(), BATCH, shuffle=True)})]


def _stateful() -> list[Side]:
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ImportError as error:
        raise Unavailable("torchdata is not installed") from error
    return _side(StatefulDataLoader)


def one_pass(has_own_numbers: bool, _: str) -> Contest:
    """A ``Loader`` against torch's loader, and torchdata's, which can resume too."""
    fastseed.init(MASTER, 1, 0)
    fastseed.reseed(1, 0)
    data: Any = per_sample(Indices()) if has_own_numbers else Indices()
    side = Side("Loader", PASS, {"loader": Loader(data, BATCH, shuffle=True)})
    beside = {"DataLoader": functools.partial(_side, DataLoader)}
    if not has_own_numbers:
        beside["StatefulDataLoader"] = _stateful
    return Contest(side, _check, beside, _check)


def cases() -> list[Case]:
    """The rows of this module: each for 20,000 samples in batches of 64."""
    plain, own = (functools.partial(one_pass, each) for each in (False, True))
    beside: dict[str, float | None] = {"DataLoader": None}
    return [
        Case("loader.pass", str(N), beside | {"StatefulDataLoader": None}, plain, headline=True),
        Case("loader.pass", f"{N}-per-sample", beside, own),
    ]
