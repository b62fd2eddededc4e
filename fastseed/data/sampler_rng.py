"""What samplers draw from, in the main process, while they make an order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from ..derivation import streams
from ..generators.torch_rng import TorchGenerator
from . import worker_seeding

DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_NAME = "loader"
_KNOWN = ("torch.utils.data.", "fastseed.data.")


def generator(master_seed: int, at: streams.Coordinates, rank: int, member: int) -> torch.Generator:
    """One of the generators that a loader needs at a point in time; member 0 is for the order."""
    made = torch.Generator()
    TorchGenerator(made).seed(streams.stream(master_seed, at, _NAME, rank).key(member))
    return made


class Borrowed:
    """The global generators, as samplers that draw from them see them.

    They begin in streams that belong to the scope, so that the order is the same in every run, and
    the main process's own draws go on as if nothing had been drawn.
    """

    def __init__(self, master_seed: int, at: streams.Coordinates, rank: int) -> None:
        self._master_seed, self._at, self._rank = master_seed, at, rank
        self._states: dict[str, torch.Tensor] | None = None

    def _begin(self) -> None:
        worker_seeding.process().reseed(
            lambda name: streams.stream(self._master_seed, self._at, f"{_NAME}.{name}", self._rank)
        )

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """While the sampler is asked for something."""
        process = worker_seeding.process()
        before = process.states()
        try:
            if self._states is None:
                self._begin()
            else:
                process.load_states(self._states)
            yield
            self._states = process.states()
        finally:
            process.load_states(before)


def is_foreign(sampler: Any) -> bool:
    """Whether its code is neither torch's nor ours, so that it may draw from anything."""
    return not type(sampler).__module__.startswith(_KNOWN)
