"""An iteration of a loader: the indices that torch fetches, and the batches that it returns.

Samplers follow the scope of the iteration and leave the generators of the main process alone.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, IterableDataset

from ..._backend import derive_ops
from ..._backend.compile import eager
from ...derivation import coordinates, streams
from ...generators.torch_rng import TorchGenerator
from ...seeder.seeder import Seeder
from ..order.samplers import samplers_in, without_generator
from ..order.shuffle import ShuffleSampler
from ..worker.scope import IterationScope, SharedScope, call_and_leave, thread_scope
from ..worker.seeding import GENERATORS

T = TypeVar("T")

_NAME = "loader"
_KNOWN_MODULES = ("torch.utils.data.", "fastseed.data.")
_END = object()


def is_iterable(loader: DataLoader[Any]) -> bool:
    """Return True if the dataset of a loader is iterable-style."""
    return isinstance(loader.dataset, IterableDataset)


def index_sampler_of(loader: DataLoader[Any]) -> Iterable[object]:
    """Return what yields the requests to the dataset: batches of indices, or indices."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


class Iteration:
    """One iteration of a loader: its scope, its indices, and how much of it was returned."""

    def __init__(
        self,
        index_sampler: Iterable[object],
        seeder: Seeder,
        scope: IterationScope,
        name: str | None = None,
    ) -> None:
        self.index_sampler, self.scope, self.name = index_sampler, scope, name
        self._master_seed, self._rank = seeder.master_seed, seeder.data_rank
        self._resume: Callable[[], None] | None = None  # the streams of another library's sampler
        self.requested = 0  # batches whose indices were handed out
        self.returned = 0  # batches, and errors in their place
        self.is_over = False

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

    def indices(self) -> Iterable[object]:
        """Return what yields the indices of this iteration."""
        return self.index_sampler

    def deliver(self, batches: object, has_arrived: bool) -> None:
        """Count a batch that torch's iterator returned, or for which it raised an error."""
        self.returned += 1

    def requests(self) -> Iterator[object]:
        """Yield the indices, batch by batch; nothing happens before the first is asked for."""
        samplers = samplers_in(self.index_sampler)
        set_epochs(samplers, self.scope.task, self.scope.epoch)
        # What divides an order into replicas needs one that is the same on all ranks.
        is_shared = any(hasattr(sampler, "num_replicas") for sampler in samplers)
        rank = coordinates.SHARED if is_shared else self._rank
        is_known = all(type(s).__module__.startswith(_KNOWN_MODULES) for s in samplers)
        iterator: Iterator[object] = iter(())

        def begin() -> object:
            nonlocal iterator
            iterator = iter(self.indices())
            return next(iterator, _END)

        def take(call: Callable[[], T]) -> T:
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
            self.requested += 1
            yield batch
            batch = take(lambda: next(iterator, _END))

    def _with_own_globals(self, rank: int, call: Callable[[], T]) -> T:
        """Let a sampler of another library draw from the global generators, in its own streams.

        Otherwise its order would depend on what the loop draws between two batches, so on the
        number of workers, and a resumed run would have another one. The main process continues as
        if nothing had been drawn, also after an interrupt at any point.
        """
        restore: Callable[[], None] | None = None

        def draw() -> T:
            nonlocal restore
            restore = GENERATORS.hold()
            if self._resume is None:
                GENERATORS.reseed(lambda name: self._stream(f"{_NAME}.{name}", 0, rank))
            else:
                self._resume()
            result = call()
            self._resume = GENERATORS.hold()
            return result

        return call_and_leave(draw, lambda: restore and restore())


# ------------------------------------------------------------------ batches


class Requests:
    """The index sampler of torch's DataLoader: yields the indices of the current iteration."""

    def __init__(self, iteration: Iteration, loader: DataLoader[Any]) -> None:
        self.iteration, self.is_iterable = iteration, is_iterable(loader)
        self.scope = SharedScope() if loader.num_workers else None
        self.has_failed = False  # a worker may have died, for which torch would wait

    def announce(self) -> None:
        """Write the scope of the iteration for the workers."""
        if self.scope is not None:
            self.scope.write(self.iteration.scope)

    def __iter__(self) -> Iterator[object]:
        # torch asks for the first batch after persistent workers have done what they were asked
        # in an iteration that was left early: only now they may see the next scope.
        self.announce()
        yield from self.iteration.requests()

    def __len__(self) -> int:
        return len(self.iteration.index_sampler)  # type: ignore[arg-type]


class LoaderIterator:
    """The batches of one iteration, fetched in its scope; the iteration counts them."""

    def __init__(self, batches: Any, iteration: Iteration, requests: Requests) -> None:
        self._batches, self._iteration, self._requests = batches, iteration, requests

    def __iter__(self) -> LoaderIterator:
        return self

    def __len__(self) -> int:
        return len(self._batches)

    @eager
    def __next__(self) -> Any:
        iteration, requests = self._iteration, self._requests
        if requests.iteration is not iteration:
            raise RuntimeError(
                "fastseed.data.loader: this iteration ended when the loader was iterated again: "
                "its workers persist and serve one iteration at a time"
            )
        before = thread_scope.get()
        try:
            thread_scope.set(iteration.scope)
            # torch may wait for ever for what a killed worker began to send
            if requests.scope is not None and not iteration.is_over:
                raise_if_killed(self._batches)
            batch = next(self._batches)
        except StopIteration as end:
            if iteration.returned < iteration.requested and not requests.is_iterable:
                raise RuntimeError(
                    "fastseed.data.loader: collate_fn must not raise StopIteration, which torch "
                    "takes for the end of the epoch"
                ) from end
            iteration.is_over = True
            raise
        except BaseException as error:
            requests.has_failed = True
            iteration.deliver(self._batches, has_arrived=False)
            if isinstance(error, Exception):
                raise_if_killed(self._batches)
            raise
        finally:
            thread_scope.set(before)
        iteration.deliver(self._batches, has_arrived=True)
        return batch


def raise_if_killed(batches: object) -> None:
    """Raise RuntimeError if a worker of torch's iterator ended otherwise than by itself."""
    killed = killed_workers(batches)
    if killed:
        raise RuntimeError(
            f"fastseed.data.loader: {', '.join(killed)}, and the batches that it was reading are "
            "lost; iterate again, which starts new workers: a ResumableLoader that loads its own "
            "state_dict() continues with the first batch that was not delivered"
        )


def killed_workers(batches: object) -> list[str]:
    """Return a text for each worker of torch's iterator that was killed or failed."""
    found = []
    for number, process in enumerate(getattr(batches, "_workers", ())):
        if code := process.exitcode:  # None while it runs, 0 if it ended by itself
            how = f"was killed by signal: {-code}" if code < 0 else f"exited unexpectedly: {code}"
            found.append(f"worker {number} (pid {process.pid}) {how}")
    return found


# ------------------------------------------------------------------ epochs of samplers

# The epoch that a loader set last, by sampler; None: the script sets it from then on.
_epochs: weakref.WeakKeyDictionary[Any, int | None] = weakref.WeakKeyDictionary()


def users_epoch(samplers: list[object]) -> int | None:
    """Return the epoch that the script set on one of ``samplers``; None if it set none.

    So scripts that count epochs with ``set_epoch`` alone keep working. A ShuffleSampler has one
    only if the script set it. That of another sampler is the script's if no loader set it, from
    then on; a sampler without weak references follows ``reseed``.
    """
    chosen = map(_users_epoch, _epoch_setters(samplers))
    return next((epoch for epoch in chosen if epoch is not None), None)


def set_epochs(samplers: list[object], task: int, epoch: int) -> None:
    """Set task and epoch of ``samplers``, but not the epoch where the script sets it."""
    setters = [s for s in _epoch_setters(samplers) if not isinstance(s, ShuffleSampler)]
    chosen = [_users_epoch(sampler) for sampler in setters]
    for sampler, own in zip(setters, chosen, strict=True):
        if hasattr(sampler, "set_scope"):
            sampler.set_scope(task, epoch if own is None else own)
        elif own is None:
            sampler.set_epoch(epoch)
    for sampler, own in zip(setters, chosen, strict=True):  # afterwards: one may set another
        with contextlib.suppress(TypeError):
            _epochs[sampler] = _epoch_of(sampler) if own is None else None


def _users_epoch(sampler: Any) -> int | None:
    if isinstance(sampler, ShuffleSampler):
        return sampler.epoch
    epoch = _epoch_of(sampler)
    try:
        return None if epoch == _epochs.get(sampler, 0) else epoch
    except TypeError:  # no weak references
        return None


def _epoch_of(sampler: object) -> int:
    epoch = getattr(sampler, "epoch", None)
    return epoch if type(epoch) is int else 0


def _epoch_setters(samplers: list[object]) -> list[Any]:
    """Return the samplers that implement ``set_scope`` or ``set_epoch``."""
    found: list[object] = []
    for sampler in samplers:
        method = getattr(sampler, "set_scope", None) or getattr(sampler, "set_epoch", None)
        owner = getattr(method, "__self__", sampler)
        if method is not None and not any(owner is other for other in found):
            found.append(owner)
    return found
