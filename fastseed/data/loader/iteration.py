"""An iteration of a loader: the indices that torch fetches, and how much the loop was given.

*Requested* runs ahead of *delivered* by what workers prefetch. A state has the position after the
last delivered batch; it follows from the number of batches, where all of them have one size.

Samplers follow the scope of the iteration and leave the generators of the main process alone.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader

from ..._backend import derive
from ...derivation import scopes, streams
from ...seeder.seeder import Seeder
from ..layout import UNKNOWN
from ..order.samplers import ShuffleSampler, samplers_in, without_generator
from ..worker.scope import IterationScope
from ..worker.seeding import GENERATORS
from ..worker.streams import torch_generator
from .states import index_sampler_of, is_iterable, layout_of, sampler_of

_NAME = "loader"
_KNOWN_MODULES = ("torch.utils.data.", "fastseed.")
_END = object()


class Iteration:
    """One iteration of a loader: its scope, its indices, and how much of it was delivered."""

    def __init__(
        self, loader: DataLoader[Any], seeder: Seeder, scope: IterationScope, is_over: bool = False
    ) -> None:
        self.index_sampler: Any = index_sampler_of(loader)
        self._sampler = sampler_of(loader)
        self.scope, self.name = scope, getattr(loader, "name", None)
        samples = self.samples = layout_of(loader, seeder)
        self.is_over = is_over
        self.requested = 0  # batches whose indices were handed out
        self.delivered = 0  # batches up to the last one that the loop was given
        self._master_seed, self._rank = seeder.master_seed, seeder.data_rank
        self._resume: list[Any] | None = None  # the streams of another library's sampler
        self._is_batched = loader.batch_sampler is not None
        self._counts_batches = getattr(self.index_sampler, "counts_batches", False)
        is_counted = samples.is_regular and self._is_batched and samples.layout.n != UNKNOWN
        # The position after each batch that is under way, where their sizes differ.
        self._ends: deque[int] | None = None if is_counted or is_iterable(loader) else deque()
        self._latest = self._end = scope.start  # of what was delivered, and requested

    @property
    def position(self) -> int:
        """The position after the batches that the loop was given."""
        if self._ends is not None or self.samples.layout.slots:
            return self._latest
        return self.samples.layout.position_after(self.scope.start, self.delivered)

    def _stream(self, name: str, step: int, rank: int) -> streams.Stream:
        scope = derive.scope_key(self._master_seed, self.scope.task, self.scope.epoch, step)
        return streams.stream_in(streams.named_scope(scope, self.name), name, rank)

    def generator(self) -> torch.Generator:
        """Return the generator that torch may draw from for workers."""
        return torch_generator(self._stream(_NAME, self.scope.start, self._rank).key(1))

    def is_empty(self) -> bool:
        """Return True if nothing of the epoch is left."""
        start = self.scope.start
        return self.is_over or bool(start and self.samples.ends_at(start))

    def _indices(self) -> Iterable[object]:
        """Return what yields the indices from the start position on."""
        batches, start = self.index_sampler, self.scope.start
        if self.is_empty():
            return ()
        if isinstance(self._sampler, ShuffleSampler):
            self._sampler.seek(start)
        elif start:
            passed = -(-start // self.samples.ranks)  # samples of this rank
            if self._sampler is batches:
                return self._batches_after(passed)
            rest: Any = itertools.islice(iter(self._sampler), passed, None)
            return BatchSampler(rest, batches.batch_size, batches.drop_last)
        return batches  # type: ignore[no-any-return]

    def _batches_after(self, passed: int) -> Iterator[object]:
        """Yield the batches of a user's sampler after so many samples; the first may be cut."""
        for batch in self.index_sampler:
            size = self._size_of(batch)
            if passed == 0:
                yield batch
            elif passed < size:
                yield batch[passed:]
            passed = max(passed - size, 0)

    def _size_of(self, batch: Any) -> int:
        is_list = self._is_batched or isinstance(batch, list)
        return 1 if self._counts_batches or not is_list else len(batch)

    def _note_request(self, batch: Any) -> None:
        self.requested += 1
        if self._ends is not None:
            end = self._end + self._size_of(batch) * self.samples.ranks
            n = self.samples.layout.n
            self._end = n if self.samples.ends_at(end) else end
            self._ends.append(self._end)

    def deliver(self, count: int) -> None:
        """Note that the loop was given batch number ``count``, from 1."""
        passed, self.delivered = count - self.delivered, count
        if self._ends is not None:
            for _ in range(passed):
                self._latest = self._ends.popleft()

    def finish_steps(self, steps: int) -> None:
        """Note that the loop was given so many steps of slots, of which this rank may have none."""
        self._latest = self.samples.layout.position_after(0, steps)

    def requests(self) -> Iterator[object]:
        """Yield the indices, batch by batch; nothing happens before the first is asked for."""
        samplers = samplers_in(self.index_sampler)
        _set_scope(samplers, self.scope.task, self.scope.epoch)
        # What divides an order into replicas needs one that is the same on all ranks.
        is_shared = any(hasattr(sampler, "num_replicas") for sampler in samplers)
        rank = scopes.SHARED if is_shared else self._rank
        is_known = all(type(s).__module__.startswith(_KNOWN_MODULES) for s in samplers)
        iterator: Iterator[object] | None = None

        def take() -> object:
            nonlocal iterator
            iterator = iter(self._indices()) if iterator is None else iterator
            return next(iterator, _END)

        draw = take if is_known else functools.partial(self._with_own_globals, rank, take)
        lent = without_generator(samplers)
        try:
            for sampler in lent:  # torch's own samplers use their generator once
                sampler.generator = torch_generator(self._stream(_NAME, 0, rank).key(0))
            batch = draw()
        finally:
            for sampler in lent:
                sampler.generator = None
        while batch is not _END:
            self._note_request(batch)
            yield batch
            batch = draw()

    def _with_own_globals(self, rank: int, call: Callable[[], object]) -> object:
        """Let a sampler of another library draw from the global generators, in its own streams.

        Otherwise its order would depend on what the loop draws between two batches.
        """
        saved = GENERATORS.save()
        try:
            if self._resume is None:
                GENERATORS.reseed(lambda name: self._stream(f"{_NAME}.{name}", 0, rank))
            else:
                GENERATORS.restore(self._resume)
            result = call()
            self._resume = GENERATORS.save()
            return result
        finally:
            GENERATORS.restore(saved)


def _set_scope(samplers: list[object], task: int, epoch: int) -> None:
    """Give task and epoch to samplers that take them; a ShuffleSampler reads them itself."""
    done: list[object] = []
    for sampler in samplers:
        method = getattr(sampler, "set_scope", None) or getattr(sampler, "set_epoch", None)
        owner: Any = getattr(method, "__self__", sampler)  # of a method that is passed through
        if method is None or isinstance(owner, ShuffleSampler) or any(owner is o for o in done):
            continue
        done.append(owner)
        if hasattr(owner, "set_scope"):
            owner.set_scope(task, epoch)
        else:
            owner.set_epoch(epoch)
