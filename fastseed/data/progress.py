"""Iterations that begin anywhere and know how far they have been delivered."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler

from .._backend.compile import eager
from ..seeder.seeder import Seeder
from .iterable import Seekable, length
from .iteration import Listeners, Plan, Run, chain
from .sample_rng import _Counting as Counting
from .sampler import ShuffleSampler

UNKNOWN = -1  # the number of samples of an iterable data set that does not say


class Order(NamedTuple):
    """What positions count: ``n`` samples, in an order of this name."""

    name: str
    n: int
    drop_last: bool
    of_data_set: bool  # an iterable one has its own
    whole: bool  # an epoch ends at n; not so with a user's sampler of batches

    def ends_at(self, position: int) -> bool:
        """Whether nothing comes after this position, as far as is known."""
        return self.whole and self.n != UNKNOWN and position >= self.n


def order_of(loader: Any) -> Order:
    """The order that a loader's samples come in."""
    dataset, drop_last = loader.dataset, bool(loader.drop_last)
    if loader._dataset_kind == 1:
        return Order(type(dataset).__name__, _length(dataset), drop_last, True, True)
    samplers = chain(loader._index_sampler)
    drop_last = drop_last or any(getattr(s, "drop_last", False) is True for s in samplers)
    whole = loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    for sampler in samplers:
        if isinstance(sampler, ShuffleSampler):
            name = sampler.name if sampler.shuffle else "in order"
            return Order(name, sampler.n, drop_last, False, whole)
        if hasattr(sampler, "num_replicas"):
            n = _length(getattr(sampler, "dataset", dataset))
            return Order(type(sampler).__name__, n, drop_last, False, whole)
    n = _length(samplers[-1] if whole else dataset)
    return Order(type(samplers[-1]).__name__, n, drop_last, False, whole)


def shares_of(loader: Any, seeder: Seeder) -> int:
    """Over how many ranks the order is dealt; 1 where each rank reads all of it."""
    if loader._dataset_kind == 1:
        return seeder.data_world_size if isinstance(loader.dataset, Seekable) else 1
    for sampler in chain(loader._index_sampler):
        if isinstance(sampler, ShuffleSampler):
            return seeder.data_world_size if sampler.world_size is None else sampler.world_size
        if hasattr(sampler, "num_replicas"):
            return int(sampler.num_replicas)
    return 1


def _length(data: Any) -> int:
    found = length(data)
    return UNKNOWN if found is None else found


class Progress:
    """How far an iteration has been delivered."""

    def __init__(self, plan: Plan, inner: Any = None) -> None:
        self.task, self.epoch, self.position = plan
        self.over = False
        self.inner = inner  # the state of a sampler that keeps its own


class Counted(Run):
    """A run that begins at its plan's position and knows where each of its batches ends."""

    def __init__(
        self,
        index_sampler: Any,
        listeners: Listeners,
        plan: Plan,
        seeder: Seeder,
        order: Order,
        shares: int,
        inner: Any = None,
        *,
        batched: bool = True,
        over: bool = False,
    ) -> None:
        super().__init__(index_sampler, listeners, plan, seeder)
        self._batched, self._over = batched, over
        self.order, self.shares, self._inner = order, shares, inner
        self.progress = Progress(plan, inner)
        self._handed_out = 0
        self._end = plan.start
        self._delivered = 0
        self._ends: deque[tuple[int, Any]] = deque()
        self._stateful = stateful(index_sampler)

    def open(self) -> Any:
        """See :class:`Run`: from the plan's position on."""
        sampler, start = self.index_sampler, self.plan.start
        if self._over or (start and self.order.ends_at(start)):
            return ()
        if self.order.of_data_set:
            return sampler
        if self._inner is not None and self._stateful is not None:
            self._stateful.load_state_dict(self._inner)
            return sampler
        if isinstance(sampler, ShuffleSampler):
            sampler.seek(start)
            return sampler
        if type(sampler) is BatchSampler:
            inner: Any = sampler.sampler
            if isinstance(inner, ShuffleSampler):
                inner.seek(start)
            elif start:
                rest: Any = _Rest(inner, self._own_samples())
                return BatchSampler(rest, sampler.batch_size, sampler.drop_last)
            return sampler
        return self._rest_of_batches() if start else sampler

    def _rest_of_batches(self) -> Iterator[Any]:
        """What a sampler of batches yields from the start on; of one that was cut, the rest."""
        skipped = self._own_samples()
        for batch in self.index_sampler:
            size = self._size(batch)
            if skipped == 0:
                yield batch
            elif skipped < size:
                yield batch[skipped:]
            skipped = max(skipped - size, 0)

    def _size(self, batch: Any) -> int:
        """How many samples a request to the data set is for."""
        return len(batch) if self._batched or isinstance(batch, list) else 1

    def _own_samples(self) -> int:
        """How many samples of this rank lie before the start."""
        return -(-self.plan.start // self.shares)

    def note(self, batch: Any) -> None:
        """See :class:`Run`."""
        self._handed_out += 1
        self._end += self._size(batch) * self.shares
        if self.order.ends_at(self._end):
            self._end = self.order.n  # ranks that repeat samples end with the rest
        inner = None if self._stateful is None else self._stateful.state_dict()
        self._ends.append((self._end, inner))

    def deliver(self, iterator: Any, arrived: bool) -> None:
        """The next batch was taken from torch's iterator, or skipped because it failed."""
        taken = getattr(iterator, "_rcvd_idx", self._handed_out)  # of workers, and without them
        while self._ends and self._delivered < taken:
            end, inner = self._ends.popleft()
            self._delivered += 1
            if arrived:
                self.progress.position, self.progress.inner = end, inner


class _Rest:
    """What a sampler yields after its first ``skipped`` samples. No data is touched."""

    def __init__(self, sampler: Any, skipped: int) -> None:
        self._sampler, self._skipped = sampler, skipped

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._sampler), self._skipped, None)


def keeps_state(thing: Any) -> bool:
    """Whether it has the usual pair of methods, and is not one of ours, which need no state."""
    kind = type(thing)  # not what it passes on from another
    both = callable(getattr(kind, "state_dict", None)) and hasattr(kind, "load_state_dict")
    return both and not isinstance(thing, (ShuffleSampler, Seekable))


def stateful(index_sampler: Any) -> Any:
    """The sampler whose state is saved, None where there is none.

    Not one whose indices are counted: the counts are those of the whole epoch.
    """
    samplers = chain(index_sampler)
    if any(isinstance(sampler, Counting) for sampler in samplers):
        return None
    return next((sampler for sampler in samplers if keeps_state(sampler)), None)


def can_seek_in(index_sampler: Any) -> bool:
    """Whether it is a ShuffleSampler, or torch's batches of one: it can begin at any position."""
    plain = type(index_sampler) is BatchSampler
    return isinstance(index_sampler.sampler if plain else index_sampler, ShuffleSampler)


class Delivery:
    """An iterator that counts what it hands over."""

    def __init__(self, iterator: Any, run: Counted) -> None:
        self._iterator, self._run = iterator, run

    def __iter__(self) -> Delivery:
        return self

    def __len__(self) -> int:
        return len(self._iterator)

    @eager
    def __next__(self) -> Any:
        if self._iterator._index_sampler.run is not self._run:
            raise RuntimeError(
                "fastseed.data.ResumableLoader: this iteration ended when the loader was iterated "
                "again: its workers persist and serve one iteration at a time"
            )
        arrived = False
        try:
            batch = next(self._iterator)
            arrived = True
        except StopIteration:
            self._run.progress.over = True
            self._run.progress.inner = None
            raise
        finally:
            self._run.deliver(self._iterator, arrived)
        return batch
