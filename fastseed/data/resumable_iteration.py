"""Iterations that start at any position and count what was delivered."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, DataLoader

from .._backend.compile import eager
from ..seeder.seeder import Seeder
from .iteration import Iteration, samplers_in
from .occurrences import CountedSampler
from .sampler import ShuffleSampler
from .seekable import Seekable
from .torch_loader import CurrentIteration, count_received, index_sampler_of, is_iterable

UNKNOWN = -1  # the length of an iterable dataset that has none


class Order(NamedTuple):
    """The order in which positions count samples, and how ranks share it."""

    name: str
    n: int
    drop_last: bool
    ranks: int  # how many ranks take turns in it; 1: each rank reads all of it
    ranks_drop: bool  # ranks leave out what does not suffice for all of them
    is_datasets: bool  # the order of an iterable dataset
    ends_at_n: bool  # not so with a user's own sampler of batches

    def ends_at(self, position: int) -> bool:
        """Return True if no sample comes after this position, as far as is known."""
        return self.ends_at_n and self.n != UNKNOWN and position >= self.n

    def left_of_rank(self, position: int) -> int:
        """Return how many samples of this rank come after this position."""
        left = max(self.n - position, 0)
        return left // self.ranks if self.ranks_drop else -(-left // self.ranks)


def order_of(loader: DataLoader[Any], seeder: Seeder | None = None) -> Order:
    """Return the order of a loader's samples; without a seeder the ranks may be wrong."""
    dataset, drop_last = loader.dataset, bool(loader.drop_last)
    job = 1 if seeder is None else seeder.data_world_size
    if is_iterable(loader):
        ranks = job if isinstance(dataset, Seekable) else 1
        name = type(dataset).__name__
        return Order(name, _length(dataset), drop_last, ranks, drop_last, True, True)
    samplers = samplers_in(index_sampler_of(loader))
    last = samplers[-1]
    drop_last = drop_last or any(getattr(s, "drop_last", False) is True for s in samplers)
    ends_at_n = loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    name, n, ranks = type(last).__name__, UNKNOWN, 1
    divided = [s for s in samplers if isinstance(s, ShuffleSampler) or hasattr(s, "num_replicas")]
    for sampler in divided[:1]:
        if isinstance(sampler, ShuffleSampler):
            name, n = sampler.name if sampler.shuffle else "in order", sampler.n
            ranks = job if sampler.world_size is None else sampler.world_size
        else:
            name, n = type(sampler).__name__, _length(getattr(sampler, "dataset", dataset))
            ranks = int(sampler.num_replicas)
    if not divided:
        n = _length(last if ends_at_n else dataset)
    ranks_drop = any(s.drop_last is True for s in divided)
    return Order(name, n, drop_last, ranks, ranks_drop, False, ends_at_n)


def _length(data: Any) -> int:
    try:
        return len(data)
    except TypeError:
        return UNKNOWN


def has_state(thing: Any) -> bool:
    """Return True for an object with its own state_dict; fastseed's sources need none."""
    kind = type(thing)  # not an attribute that is passed on from another object
    both = callable(getattr(kind, "state_dict", None)) and hasattr(kind, "load_state_dict")
    return both and not isinstance(thing, (ShuffleSampler, Seekable))


def stateful_sampler(index_sampler: Any) -> Any:
    """Return the sampler whose state is saved; None without one.

    Indices whose occurrences are counted are counted from the start of the epoch.
    """
    samplers = samplers_in(index_sampler)
    if any(isinstance(sampler, CountedSampler) for sampler in samplers):
        return None
    return next((sampler for sampler in samplers if has_state(sampler)), None)


def can_start_anywhere(index_sampler: Any) -> bool:
    """Return True for a ShuffleSampler or torch's batches of one."""
    is_batches = type(index_sampler) is BatchSampler
    return isinstance(index_sampler.sampler if is_batches else index_sampler, ShuffleSampler)


class ResumableIteration(Iteration):
    """An iteration that starts at a position and knows the position after each of its batches.

    Args:
        loader: the loader that is iterated.
        inner: the state of a sampler that has its own.
        is_over: the epoch had come to its end.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        seeder: Seeder,
        task: int,
        epoch: int,
        start: int,
        *,
        inner: Any = None,
        is_over: bool = False,
    ) -> None:
        super().__init__(index_sampler_of(loader), seeder, task, epoch, start)
        self.order = order_of(loader, seeder)
        self.position, self.inner, self.is_over = start, inner, is_over
        self._initial = inner
        self._is_batched = loader.batch_sampler is not None
        self._batch_size = loader.batch_size or 1
        self._sampler = stateful_sampler(self.index_sampler)
        self._end = start  # the position after all batches that were handed out
        self._ends: deque[tuple[int, Any]] = deque()
        self._handed_out = self._received = 0

    def is_empty(self) -> bool:
        """Return True if nothing of the epoch is left."""
        return self.is_over or bool(self.start and self.order.ends_at(self.start))

    def open(self) -> Any:
        """Return what yields the indices from the start position on."""
        sampler = self.index_sampler
        if self.is_empty():
            return ()
        if self._initial is not None and self._sampler is not None:
            self._sampler.load_state_dict(self._initial)
            return sampler
        inner = sampler.sampler if type(sampler) is BatchSampler else sampler
        if isinstance(inner, ShuffleSampler):
            inner.seek(self.start)
            return sampler
        if not self.start:
            return sampler
        if type(sampler) is BatchSampler:
            rest: Any = _Rest(inner, self._own_samples())
            return BatchSampler(rest, sampler.batch_size, sampler.drop_last)
        return self._rest_of_batches()

    def _own_samples(self) -> int:
        """Return how many samples of this rank come before the start."""
        return -(-self.start // self.order.ranks)

    def _rest_of_batches(self) -> Iterator[Any]:
        """Yield the batches of a user's sampler from the start on; the first may be cut."""
        skipped = self._own_samples()
        for batch in self.index_sampler:
            size = self._size(batch)
            if skipped == 0:
                yield batch
            elif skipped < size:
                yield batch[skipped:]
            skipped = max(skipped - size, 0)

    def _size(self, batch: Any) -> int:
        return len(batch) if self._is_batched or isinstance(batch, list) else 1

    def note(self, batch: Any) -> None:
        """Remember the position after these indices, and the sampler's state there."""
        self._handed_out += 1
        self._end = self._after(self._end, self._size(batch))
        state = None if self._sampler is None else self._sampler.state_dict()
        self._ends.append((self._end, state))

    def _after(self, position: int, size: int) -> int:
        position += size * self.order.ranks
        return self.order.n if self.order.ends_at(position) else position

    def deliver(self, iterator: Any, has_arrived: bool) -> None:
        """Count a batch that torch's iterator returned, or for which it raised an error."""
        is_datasets = self.order.is_datasets
        self._handed_out += is_datasets
        received = count_received(iterator, self._handed_out)
        while self._received < received and (is_datasets or self._ends):
            if is_datasets:
                self._end = self._after(self._end, self._batch_size)
            end, state = (self._end, None) if is_datasets else self._ends.popleft()
            self._received += 1
            if has_arrived:
                self.position, self.inner = end, state


class _Rest:
    """The samples of a sampler after its first ``skipped``; no data is read."""

    def __init__(self, sampler: Any, skipped: int) -> None:
        self._sampler, self._skipped = sampler, skipped

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._sampler), self._skipped, None)


class CountingIterator:
    """An iterator over batches that counts those it returns."""

    def __init__(
        self, iterator: Any, iteration: ResumableIteration, current: CurrentIteration
    ) -> None:
        self._iterator, self._iteration, self._current = iterator, iteration, current

    def __iter__(self) -> CountingIterator:
        return self

    def __len__(self) -> int:
        return len(self._iterator)

    @eager
    def __next__(self) -> Any:
        if self._current.iteration is not self._iteration:
            raise RuntimeError(
                "fastseed.data.ResumableLoader: this iteration ended when the loader was iterated "
                "again: its workers persist and serve one iteration at a time"
            )
        has_arrived = False
        try:
            batch = next(self._iterator)
            has_arrived = True
        except StopIteration:
            self._iteration.is_over, self._iteration.inner = True, None
            raise
        finally:
            self._iteration.deliver(self._iterator, has_arrived)
        return batch
