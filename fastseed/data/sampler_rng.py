"""What samplers draw from, in the main process, while they make an order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from .._backend import derive_ops
from ..derivation import streams
from ..generators.adapters import TorchSink
from . import worker_seeding

DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_NAME = "loader"
_KNOWN = ("torch.utils.data.", "fastseed.data.")


def generator(master_seed: int, at: streams.Coordinates, rank: int, member: int) -> torch.Generator:
    """One of the generators that a loader needs at a point in time; member 0 is for the order."""
    made = torch.Generator()
    TorchSink(made).reseed(streams.stream(master_seed, at, _NAME, rank).key(member))
    return made


class Borrowed:
    """The global generators, as samplers that draw from them see them.

    They begin in streams that belong to the scope, so that the order is the same in every run, and
    the main process's own draws go on as if nothing had been drawn.
    """

    def __init__(self, master_seed: int, at: streams.Coordinates, rank: int) -> None:
        self._scope, self._rank = derive_ops.scope_key(master_seed, *at), rank
        self._states: Sequence[Any] | None = None

    def _begin(self) -> None:
        for name, sink in worker_seeding.process().sinks.items():
            sink.reseed(streams.stream_in(self._scope, f"{_NAME}.{name}", self._rank).key())

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """While the sampler is asked for something."""
        process = worker_seeding.process()
        before = process.states()
        try:
            if self._states is None:
                self._begin()
            else:
                process.load(self._states)
            yield
            self._states = process.states()
        finally:
            process.load(before)


def is_foreign(sampler: Any) -> bool:
    """Whether its code is neither torch's nor ours, so that it may draw from anything."""
    return not type(sampler).__module__.startswith(_KNOWN)
