"""The indices of a loader's iteration: samplers follow its scope and leave generators alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from ..._backend import derive_ops
from ...derivation import coordinates, streams
from ...generators.torch_rng import TorchGenerator
from ...seeder.seeder import Seeder
from ..worker.scope import IterationScope
from ..worker.seeding import GENERATORS

RANDOM_SAMPLERS = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)

_NAME = "loader"
_KNOWN_MODULES = ("torch.utils.data.", "fastseed.data.")
_EPOCH_SET = "_fastseed_epoch"  # on a sampler: the epoch that a loader set; None: the user sets it
_END = object()


class Iteration:
    """One iteration of a loader: its scope, and the indices that torch fetches in it."""

    def __init__(
        self, index_sampler: Any, seeder: Seeder, scope: IterationScope, name: str | None = None
    ) -> None:
        self.index_sampler, self.scope, self.name = index_sampler, scope, name
        self._master_seed, self._rank = seeder.master_seed, seeder.data_rank
        self._resume: Callable[[], None] | None = None  # the streams of another library's sampler
        self.requested = 0  # batches whose indices were handed out

    def _stream(self, name: str, step: int, rank: int) -> streams.Stream:
        scope = derive_ops.scope_key(self._master_seed, self.scope.task, self.scope.epoch, step)
        return streams.stream_in(streams.named_scope(scope, self.name), name, rank)

    def generator(self) -> torch.Generator:
        """Return the generator that torch may draw from for workers."""
        return self._generator(self.scope.start, self._rank, 1)

    def _generator(self, step: int, rank: int, index: int) -> torch.Generator:
        generator = torch.Generator()
        TorchGenerator(generator).seed(self._stream(_NAME, step, rank).key(index))
        return generator

    def open(self) -> Any:
        """Return what yields the indices of this iteration."""
        return self.index_sampler

    def note(self, batch: Any) -> None:
        """Take note of indices that are handed out now."""

    def deliver(self, iterator: Any, has_arrived: bool) -> None:
        """Take note of a batch that torch's iterator returned, or for which it raised an error."""

    def finish(self) -> None:
        """Take note of the end of the epoch."""

    def batches(self) -> Iterator[Any]:
        """Yield the indices, batch by batch; nothing happens before the first is asked for."""
        samplers = samplers_in(self.index_sampler)
        set_epochs(samplers, self.scope.task, self.scope.epoch)
        # What divides an order into replicas needs one that is the same on all ranks.
        is_shared = any(hasattr(sampler, "num_replicas") for sampler in samplers)
        rank = coordinates.SHARED if is_shared else self._rank
        is_known = all(type(s).__module__.startswith(_KNOWN_MODULES) for s in samplers)
        iterator: Iterator[Any] = iter(())

        def begin() -> Any:
            nonlocal iterator
            iterator = iter(self.open())
            return next(iterator, _END)

        def take(call: Callable[[], Any]) -> Any:
            return call() if is_known else self._with_own_globals(rank, call)

        lent = without_generator(samplers)
        try:
            for sampler in lent:  # torch's own samplers use their generator once
                sampler.generator = self._generator(0, rank, 0)
            batch = take(begin)
        finally:
            for sampler in lent:
                sampler.generator = None
        while batch is not _END:
            self.note(batch)
            self.requested += 1
            yield batch
            batch = take(lambda: next(iterator, _END))

    def _with_own_globals(self, rank: int, call: Callable[[], Any]) -> Any:
        """Let a sampler of another library draw from the global generators, in its own streams.

        So the order is the same in every run, and the main process continues afterwards as if
        nothing had been drawn, also after an interrupt at any point.
        """
        restore: Callable[[], None] | None = None
        try:
            restore = GENERATORS.hold()
            if self._resume is None:
                GENERATORS.reseed(lambda name: self._stream(f"{_NAME}.{name}", 0, rank))
            else:
                self._resume()
            result = call()
            self._resume = GENERATORS.hold()
            return result
        finally:
            if restore is not None:
                try:
                    restore()
                except BaseException:  # an interrupt, for example
                    restore()
                    raise


def samplers_in(sampler: Any) -> list[Any]:
    """Return a sampler and those that it wraps, the outermost first."""
    found: list[Any] = []
    while sampler is not None and not any(sampler is other for other in found):
        found.append(sampler)
        sampler = getattr(sampler, "sampler", None)
    return found


# ------------------------------------------------------------------ epochs of samplers


def users_epoch(samplers: list[Any]) -> int | None:
    """Return the epoch that the user set on one of ``samplers`` with ``set_epoch``; None if none.

    A sampler whose epoch is another than a loader set last is the user's from then on, so scripts
    that count epochs with ``set_epoch`` alone keep working. The mark is on the sampler itself, for
    other loaders of the same sampler; one that takes no attributes follows ``reseed``.
    """
    chosen = map(_users_epoch, _epoch_setters(samplers))
    return next((epoch for epoch in chosen if epoch is not None), None)


def set_epochs(samplers: list[Any], task: int, epoch: int) -> None:
    """Set task and epoch of ``samplers``, but not the epoch where the user sets it."""
    setters = [(sampler, _users_epoch(sampler)) for sampler in _epoch_setters(samplers)]
    for sampler, chosen in setters:
        if hasattr(sampler, "set_scope"):
            sampler.set_scope(task, epoch if chosen is None else chosen)
        elif chosen is None:
            sampler.set_epoch(epoch)
    for sampler, chosen in setters:  # afterwards, since one may set another
        if hasattr(sampler, "__dict__"):
            setattr(sampler, _EPOCH_SET, _epoch_of(sampler) if chosen is None else None)


def _users_epoch(sampler: Any) -> int | None:
    epoch = _epoch_of(sampler)
    is_users = hasattr(sampler, "__dict__") and epoch != getattr(sampler, _EPOCH_SET, 0)
    return epoch if is_users else None


def _epoch_of(sampler: Any) -> int:
    epoch = getattr(sampler, "epoch", None)
    return epoch if type(epoch) is int else 0


def _epoch_setters(samplers: list[Any]) -> list[Any]:
    """Return the samplers that implement ``set_scope`` or ``set_epoch``."""
    found: list[Any] = []
    for sampler in samplers:
        method = getattr(sampler, "set_scope", None) or getattr(sampler, "set_epoch", None)
        owner = getattr(method, "__self__", sampler)
        if method is not None and not any(owner is other for other in found):
            found.append(owner)
    return found


def without_generator(samplers: list[Any]) -> list[Any]:
    """Return torch's own samplers that have no generator: the loader lends them one."""
    return [s for s in samplers if isinstance(s, RANDOM_SAMPLERS) and s.generator is None]
