"""One iteration of a loader: which scope it has, and which indices torch is to fetch in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..derivation import streams
from ..seeder.seeder import Seeder
from . import sampler_rng
from .sampler_rng import Borrowed

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


_MARK = "_fastseed_told"


class Listener:
    """A sampler that wants to know the epoch.

    One that has another epoch than it was told got it from the user, and is the user's from then
    on: jobs that count epochs with ``set_epoch`` alone keep doing so. What it was told is marked on
    the sampler itself, where other loaders that have it find it, and copies take it along.
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self._mark = 0, False  # where none can be put on it

    def _epoch(self) -> int:
        """Its epoch; 0 where it has none yet."""
        epoch = getattr(self.sampler, "epoch", None)
        return epoch if type(epoch) is int else 0

    def chosen(self) -> int | None:
        """The epoch that the user set, if any."""
        told, is_users = getattr(self.sampler, _MARK, self._mark)
        epoch = self._epoch()
        return epoch if is_users or epoch != told else None

    def tell(self, plan: Plan, chosen: int | None) -> None:
        """Tell it where the iteration is; not the epoch, where that is the user's."""
        if hasattr(self.sampler, "set_scope"):
            self.sampler.set_scope(plan.task, plan.epoch if chosen is None else chosen)
        elif chosen is None:
            self.sampler.set_epoch(plan.epoch)

    def remember(self, is_users: bool) -> None:
        """This is what it was told."""
        self._mark = self._epoch(), is_users
        with contextlib.suppress(AttributeError):
            setattr(self.sampler, _MARK, self._mark)


class Listeners:
    """The samplers of a loader that listen."""

    def __init__(self, samplers: list[Any]) -> None:
        told: list[Any] = []
        for sampler in samplers:
            speaker = _listener(sampler)
            if speaker is not None and not any(speaker is other for other in told):
                told.append(speaker)
        self._all = [Listener(sampler) for sampler in told]

    def chosen(self) -> int | None:
        """The epoch that the user set on one of them, if any."""
        chosen = [listener.chosen() for listener in self._all]
        return next((epoch for epoch in chosen if epoch is not None), None)

    def tell(self, plan: Plan) -> None:
        """Tell all of them where the iteration is."""
        chosen = [listener.chosen() for listener in self._all]
        for listener, epoch in zip(self._all, chosen, strict=True):  # one may tell another
            listener.tell(plan, epoch)
        for listener, epoch in zip(self._all, chosen, strict=True):
            listener.remember(epoch is not None)


def _listener(sampler: Any) -> Any:
    """Who it is that hears what is said to a sampler, which may pass it on; None for nobody."""
    method = getattr(sampler, "set_scope", None) or getattr(sampler, "set_epoch", None)
    return None if method is None else getattr(method, "__self__", sampler)


class Run:
    """One iteration: its plan, and the indices that torch is to fetch."""

    def __init__(
        self, index_sampler: Any, listeners: Listeners, plan: Plan, seeder: Seeder
    ) -> None:
        self.index_sampler, self.plan = index_sampler, plan
        self._listeners = listeners
        self._seeder = seeder
        here = streams.Coordinates(plan.task, plan.epoch, plan.start)
        self.generator = sampler_rng.generator(seeder.master_seed, here, seeder.data_rank, 1)
        """For what torch draws besides the order, on behalf of workers and DataPipes."""

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
        samplers = chain(self.index_sampler)
        # What cuts an order into replicas needs one that all ranks agree on.
        shared = any(hasattr(sampler, "num_replicas") for sampler in samplers)
        rank = streams.SHARED if shared else self._seeder.data_rank
        at = streams.Coordinates(self.plan.task, self.plan.epoch, 0)
        globals_: Any = contextlib.nullcontext
        if any(map(sampler_rng.is_foreign, samplers)):
            globals_ = Borrowed(self._seeder.master_seed, at, rank).here
        with globals_(), self._lent(samplers, at, rank):
            iterator = iter(self.open())
            batch = next(iterator, _END)
        while batch is not _END:
            self.note(batch)
            yield batch
            with globals_():
                batch = next(iterator, _END)

    @contextlib.contextmanager
    def _lent(self, samplers: list[Any], at: streams.Coordinates, rank: int) -> Iterator[None]:
        """torch's own samplers draw their order from a generator of ours.

        They look at their generator once, when they begin: it is theirs for that long only. torch
        draws from another one (how often depends on workers and their persistence).
        """
        lent = [s for s in samplers if isinstance(s, sampler_rng.DRAWING) and s.generator is None]
        for sampler in lent:
            sampler.generator = sampler_rng.generator(self._seeder.master_seed, at, rank, 0)
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


def lives(iterator: Any) -> bool:
    """Whether all workers of a pool do. torch would wait for ever for what a dead one was asked."""
    return all(worker.is_alive() for worker in iterator._workers)
