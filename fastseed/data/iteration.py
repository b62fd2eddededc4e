"""One iteration of a loader: which scope it has, and which indices torch is to fetch in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from .. import streams
from ..seeder import Seeder
from ..sinks import TorchSink

_DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_END = object()


class Plan(NamedTuple):
    """What an iteration is told when it begins."""

    task: int
    epoch: int
    start: int  # the global position of its first sample


def chain(sampler: Any) -> list[Any]:
    """A sampler and those that it wraps, the outermost first."""
    found: list[Any] = []
    while sampler is not None and not any(sampler is seen for seen in found):
        found.append(sampler)
        sampler = getattr(sampler, "sampler", None)
    return found


class Listener:
    """A sampler that wants to know the epoch, and what it was told last.

    One that has another epoch than it was told got it from the user, and is the user's from then
    on: jobs that count epochs with ``set_epoch`` alone keep doing so.
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self._told = self._epoch()
        self._is_users = False

    def _epoch(self) -> int | None:
        epoch = getattr(self.sampler, "epoch", None)
        return epoch if type(epoch) is int else None

    def chosen(self) -> int | None:
        """The epoch that the user set, if any."""
        epoch = self._epoch()
        self._is_users = self._is_users or epoch != self._told
        return epoch if self._is_users else None

    def tell(self, plan: Plan) -> None:
        """Tell it where the iteration is; not the epoch, where that is the user's."""
        chosen = self._epoch() if self._is_users else None
        if hasattr(self.sampler, "set_scope"):
            self.sampler.set_scope(plan.task, plan.epoch if chosen is None else chosen)
        elif chosen is None:
            self.sampler.set_epoch(plan.epoch)

    def remember(self) -> None:
        """This is what it was told."""
        if not self._is_users:
            self._told = self._epoch()


class Listeners:
    """The samplers of a loader that listen."""

    def __init__(self, samplers: list[Any]) -> None:
        self._all = [Listener(sampler) for sampler in samplers if _listens(sampler)]

    def chosen(self) -> int | None:
        """The epoch that the user set on one of them, if any."""
        chosen = [listener.chosen() for listener in self._all]
        return next((epoch for epoch in chosen if epoch is not None), None)

    def tell(self, plan: Plan) -> None:
        """Tell all of them where the iteration is."""
        self.chosen()  # of all before any is told: what wraps another may speak for it
        for listener in self._all:
            listener.tell(plan)
        for listener in self._all:
            listener.remember()


def _listens(sampler: Any) -> bool:
    return hasattr(sampler, "set_scope") or hasattr(sampler, "set_epoch")


class Run:
    """One iteration: its plan, and the indices that torch is to fetch."""

    def __init__(
        self, index_sampler: Any, listeners: Listeners, plan: Plan, seeder: Seeder
    ) -> None:
        self.index_sampler, self.plan = index_sampler, plan
        self._listeners = listeners
        self._seeder = seeder
        self.generator = self._generator(seeder.data_rank)
        """For all that torch draws in the main process on behalf of this iteration."""

    def _generator(self, rank: int) -> torch.Generator:
        at = streams.Coordinates(self.plan.task, self.plan.epoch, 0)
        stream = streams.stream(self._seeder.master_seed, at, "loader", rank)
        generator = torch.Generator()
        TorchSink(generator).reseed(stream.key())
        return generator

    def open(self) -> Any:
        """What yields the indices of this iteration; called when the first is asked for."""
        return self.index_sampler

    def note(self, batch: Any) -> None:
        """These indices are handed out now."""

    def batches(self) -> Iterator[Any]:
        """The indices, batch by batch. Nothing happens before the first is asked for.

        (torch calls ``iter`` twice for a worker pool, and begins only one of the two.)
        """
        self._listeners.tell(self.plan)
        with self._lent():
            iterator = iter(self.open())
            batch = next(iterator, _END)
        while batch is not _END:
            self.note(batch)
            yield batch
            batch = next(iterator, _END)

    @contextlib.contextmanager
    def _lent(self) -> Iterator[None]:
        """torch's own samplers draw their order from a generator of ours.

        They look at their generator once, when they begin: it is theirs for that long only.
        """
        generator, lent = self.generator, []
        for sampler in chain(self.index_sampler):
            if hasattr(sampler, "num_replicas"):  # cuts an order that all ranks have to agree on
                generator = self._generator(streams.SHARED)
            if isinstance(sampler, _DRAWING) and sampler.generator is None:
                sampler.generator = generator
                lent.append(sampler)
        try:
            yield
        finally:
            for sampler in lent:
                sampler.generator = None


class Indices:
    """Stands where torch's iterator has its sampler, also when workers outlive an epoch."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __iter__(self) -> Iterator[Any]:
        return self.run.batches()

    def __len__(self) -> int:
        return len(self.run.index_sampler)


class View:
    """A loader as torch's iterator is to see it; everything that is not here is the loader's."""

    def __init__(self, loader: Any, **instead: Any) -> None:
        self.__dict__.update(instead, _loader=loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def let_go(iterator: Any) -> None:
    """Wait for what a worker pool was asked in an iteration that was left early.

    Its workers must not see the next scope before they are done with the last one. (An iterable
    data set is told by its ``__iter__``, which comes after all that; and how many answers it still
    owes is not known.)
    """
    while iterator._dataset_kind == 0 and iterator._tasks_outstanding > 0:
        iterator._get_data()
        iterator._tasks_outstanding -= 1
