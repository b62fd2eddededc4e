"""An iteration of a loader: the indices that torch fetches, and the batches that it returns.

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
from ..._backend.compile import eager
from ...derivation import scopes, streams
from ...generators.torch_rng import TorchGenerator
from ...seeder.seeder import Seeder
from ..order.samplers import samplers_in, without_generator
from ..order.shuffle import ShuffleSampler
from ..order.slots import SlotSampler
from ..worker.scope import IterationScope, SharedScope, call_and_leave, thread_scope
from ..worker.seeding import GENERATORS
from .division import Division
from .epochs import set_epochs
from .shared_order import SharedOrder, index_sampler_of, is_iterable, samples_of

_NAME = "loader"
_KNOWN_MODULES = ("torch.utils.data.", "fastseed.data.")
_END = object()


class Iteration:
    """One iteration of a loader: its scope, its indices, and how much of it was returned.

    Args:
        loader: the loader that is iterated.
        seeder: the seeder of the job.
        scope: where it starts.
        order: in which positions count samples; None: all of the sampler, without positions.
        is_over: the epoch had come to its end.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        seeder: Seeder,
        scope: IterationScope,
        order: SharedOrder | None = None,
        is_over: bool = False,
    ) -> None:
        self.index_sampler: Any = index_sampler_of(loader)
        self.scope, self.name = scope, getattr(loader, "name", None)
        self._master_seed, self._rank = seeder.master_seed, seeder.data_rank
        self._resume: list[Any] | None = None  # the streams of another library's sampler
        self.requested = 0  # batches whose indices were handed out
        self.returned = 0  # batches, and errors in their place
        self.is_over = is_over
        self.order = order
        self._is_iterable, self._is_batched = is_iterable(loader), loader.batch_sampler is not None
        self._batch_size = loader.batch_size or 1
        self.position = scope.start  # after the batches that the loop was given
        self._end = scope.start  # the position after all batches that were handed out
        self._ends: deque[int] = deque()  # of those that were not yet received
        self._received = 0

    def _stream(self, name: str, step: int, rank: int) -> streams.Stream:
        scope = derive.scope_key(self._master_seed, self.scope.task, self.scope.epoch, step)
        return streams.stream_in(streams.named_scope(scope, self.name), name, rank)

    def generator(self) -> torch.Generator:
        """Return the generator that torch may draw from for workers."""
        return self._generator(self.scope.start, self._rank, 1)

    def _generator(self, step: int, rank: int, index: int) -> torch.Generator:
        generator = torch.Generator()
        TorchGenerator(generator).seed(self._stream(_NAME, step, rank).key(index))
        return generator

    def is_empty(self) -> bool:
        """Return True if nothing of the epoch is left."""
        start = self.scope.start
        return self.is_over or bool(start and self.order and self.order.ends_at(start))

    def _indices(self) -> Iterable[object]:
        """Return what yields the indices from the start position on."""
        sampler, start = self.index_sampler, self.scope.start
        if self.is_empty():
            return ()
        samples = samples_of(sampler)
        if self.order and isinstance(samples, ShuffleSampler):
            samples.seek(start)
        elif self.order and start:
            passed = -(-start // self.order.ranks)  # samples of this rank
            if samples is sampler:
                return self._batches_after(passed)
            rest: Any = itertools.islice(iter(samples), passed, None)
            return BatchSampler(rest, sampler.batch_size, sampler.drop_last)
        return sampler  # type: ignore[no-any-return]

    def _batches_after(self, passed: int) -> Iterator[object]:
        """Yield the batches of a user's sampler after so many samples; the first may be cut."""
        for batch in self.index_sampler:
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

    def _note(self, order: SharedOrder, size: int) -> None:
        """Remember the position after another batch."""
        if isinstance(self.index_sampler, SlotSampler):
            return  # a rank may have no slot of a step: the loop over steps counts them
        end = self._end + size * order.ranks
        self._end = order.n if order.ends_at(end) else end
        self._ends.append(self._end)

    def deliver(self, batches: object, has_arrived: bool) -> None:
        """Count a batch that torch's iterator returned, or for which it raised an error."""
        self.returned += 1
        if self.order is None:
            return
        # With workers an error may be that of a batch, of a worker or a timeout: torch knows.
        received = getattr(batches, "_rcvd_idx", self.returned)
        while self._received < received and (self._is_iterable or self._ends):
            if self._is_iterable:
                self._note(self.order, self._batch_size)
            self._received += 1
            end = self._ends.popleft()
            if has_arrived:
                self.position = end

    def requests(self) -> Iterator[object]:
        """Yield the indices, batch by batch; nothing happens before the first is asked for."""
        samplers = samplers_in(self.index_sampler)
        set_epochs(samplers, self.scope.task, self.scope.epoch)
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
                sampler.generator = self._generator(0, rank, 0)
            batch = draw()
        finally:
            for sampler in lent:
                sampler.generator = None
        while batch is not _END:
            self.requested += 1
            if self.order is not None:
                self._note(self.order, self._size(batch))
            yield batch
            batch = draw()

    def _with_own_globals(self, rank: int, call: Callable[[], object]) -> object:
        """Let a sampler of another library draw from the global generators, in its own streams.

        Otherwise its order would depend on what the loop draws between two batches, so on the
        number of workers, and a resumed run would have another one. The main process continues as
        if nothing had been drawn, also after an interrupt at any point.
        """
        saved: list[Any] | None = None

        def draw() -> object:
            nonlocal saved
            saved = GENERATORS.save()
            if self._resume is None:
                GENERATORS.reseed(lambda name: self._stream(f"{_NAME}.{name}", 0, rank))
            else:
                GENERATORS.restore(self._resume)
            result = call()
            self._resume = GENERATORS.save()
            return result

        return call_and_leave(draw, lambda: saved and GENERATORS.restore(saved))


# ------------------------------------------------------------------ batches


class Requests:
    """The index sampler of torch's DataLoader: yields the indices of the current iteration."""

    def __init__(self, iteration: Iteration, loader: DataLoader[Any]) -> None:
        self.iteration = iteration
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
        return len(self.iteration.index_sampler)


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
            if iteration.returned < iteration.requested:
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
