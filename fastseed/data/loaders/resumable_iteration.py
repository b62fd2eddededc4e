"""Iterations that start at any position and count what was delivered."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, DataLoader

from ...seeder.seeder import Seeder
from ..order.samplers import samplers_in
from ..order.shuffle import ShuffleSampler
from ..worker.scope import IterationScope
from .division import Division
from .iteration import Iteration, index_sampler_of, is_iterable
from .seekable import Seekable

UNKNOWN = -1  # the length of an iterable dataset that has none


class SharedOrder(NamedTuple):
    """The order in which positions count samples, and how ranks share it."""

    name: str
    n: int
    drop_last: bool
    ranks: int = 1  # how many ranks take turns in it; 1: each rank reads all of it
    ranks_drop: bool = False  # ranks leave out what does not suffice for all of them
    starts_anywhere: bool = False  # not only where all ranks have taken as many samples
    ends_at_n: bool = True  # not so with a user's own sampler of batches

    def ends_at(self, position: int) -> bool:
        """Return True if no sample comes after this position, as far as is known."""
        return self.ends_at_n and self.n != UNKNOWN and position >= self.n

    def has_batch_after(self, position: int, least: int) -> bool:
        """Return True if this rank may have ``least`` samples after this position."""
        if not self.ends_at_n or self.n == UNKNOWN:
            return True
        left = max(self.n - position, 0)
        own = left // self.ranks if self.ranks_drop else -(-left // self.ranks)
        return own >= least


def order_of(loader: DataLoader[Any], seeder: Seeder | None = None) -> SharedOrder:
    """Return the order of a loader's samples; without a seeder the ranks may be wrong."""
    dataset, drop_last = loader.dataset, bool(loader.drop_last)
    job = 1 if seeder is None else seeder.data_world_size
    if is_iterable(loader):
        ranks = job if isinstance(dataset, Seekable) else 1
        name = type(dataset).__name__
        return SharedOrder(name, _length(dataset), drop_last, ranks, starts_anywhere=True)
    samplers = samplers_in(index_sampler_of(loader))
    drop_last = drop_last or any(getattr(s, "drop_last", False) is True for s in samplers)
    ends_at_n = loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    for sampler in samplers:
        if isinstance(sampler, ShuffleSampler):
            name, n = sampler.describe_order(), sampler.n
            ranks = job if sampler.world_size is None else sampler.world_size
        elif hasattr(sampler, "num_replicas"):
            name, n = type(sampler).__name__, _length(getattr(sampler, "dataset", dataset))
            ranks = int(sampler.num_replicas)
        else:
            continue
        ranks_drop = getattr(sampler, "drop_last", False) is True
        anywhere = sampler is _samples_of(samplers[0]) and isinstance(sampler, ShuffleSampler)
        return SharedOrder(name, n, drop_last, ranks, ranks_drop, anywhere, ends_at_n)
    n = _length(samplers[-1] if ends_at_n else dataset)
    return SharedOrder(type(samplers[-1]).__name__, n, drop_last, ends_at_n=ends_at_n)


def _length(data: Any) -> int:
    try:
        return len(data)
    except TypeError:
        return UNKNOWN


def _samples_of(index_sampler: Any) -> Any:
    """Return the sampler behind torch's batches."""
    return index_sampler.sampler if type(index_sampler) is BatchSampler else index_sampler


class ResumableIteration(Iteration):
    """An iteration that starts at a position and knows the position after each of its batches.

    Args:
        loader: the loader that is iterated.
        seeder: the seeder of the job.
        scope: where it starts.
        is_over: the epoch had come to its end.
    """

    def __init__(
        self, loader: DataLoader[Any], seeder: Seeder, scope: IterationScope, is_over: bool = False
    ) -> None:
        super().__init__(index_sampler_of(loader), seeder, scope, getattr(loader, "name", None))
        self.order = order_of(loader, seeder)
        self.position, self.is_over = scope.start, is_over
        self._is_iterable = is_iterable(loader)
        self._is_batched = loader.batch_sampler is not None
        self._batch_size = loader.batch_size or 1
        self._end = scope.start  # the position after all batches that were handed out
        self._ends: deque[int] = deque()  # of those that were not yet received
        self._received = 0

    def is_empty(self) -> bool:
        """Return True if nothing of the epoch is left."""
        start = self.scope.start
        return self.is_over or bool(start and self.order.ends_at(start))

    def indices(self) -> Any:
        """Return what yields the indices from the start position on."""
        sampler: Any = self.index_sampler
        start = self.scope.start
        if self.is_empty():
            return ()
        samples = _samples_of(sampler)
        if isinstance(samples, ShuffleSampler):
            samples.seek(start)
            return sampler
        if not start:
            return sampler
        passed = -(-start // self.order.ranks)  # samples of this rank
        if samples is sampler:
            return self._batches_after(passed)
        rest: Any = itertools.islice(iter(samples), passed, None)
        return BatchSampler(rest, sampler.batch_size, sampler.drop_last)

    def _batches_after(self, passed: int) -> Iterator[object]:
        """Yield the batches of a user's sampler after so many samples; the first may be cut."""
        batches: Any = self.index_sampler
        for batch in batches:
            size = self._size(batch)
            if passed == 0:
                yield batch
            elif passed < size:
                yield batch[passed:]
            passed = max(passed - size, 0)

    def _size(self, batch: Any) -> int:
        if isinstance(self.index_sampler, Division):
            return 1
        return len(batch) if self._is_batched or isinstance(batch, list) else 1

    def requests(self) -> Iterator[object]:
        """Yield the indices, batch by batch, and remember the position after each."""
        for batch in super().requests():
            self._note(self._size(batch))
            yield batch

    def _note(self, size: int) -> None:
        end = self._end + size * self.order.ranks
        self._end = self.order.n if self.order.ends_at(end) else end
        self._ends.append(self._end)

    def deliver(self, batches: object, has_arrived: bool) -> None:
        """Count a batch that torch's iterator returned, or for which it raised an error."""
        super().deliver(batches, has_arrived)
        # With workers an error may be that of a batch, of a worker or a timeout: torch knows.
        received = getattr(batches, "_rcvd_idx", self.returned)
        while self._received < received and (self._is_iterable or self._ends):
            if self._is_iterable:
                self._note(self._batch_size)
            self._received += 1
            end = self._ends.popleft()
            if has_arrived:
                self.position = end
