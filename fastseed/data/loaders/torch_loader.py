"""The torch DataLoader behind a loader of fastseed, and the iterator over its batches."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from ..._backend.compile import eager
from ...seeder.seeder import Seeder
from ..worker.scope import SharedScope, thread_scope
from ..worker.scoped_dataset import ScopedDataset
from ..worker.seeding import WorkerInit, WorkerSeeder
from .iteration import Iteration
from .seekable import Seekable, Share

logger = logging.getLogger("fastseed")

_PARAMETERS = tuple(inspect.signature(DataLoader.__init__).parameters)[1:]
_OF_SAMPLERS = ("batch_size", "drop_last", "sampler", "batch_sampler", "shuffle")


def is_iterable(loader: DataLoader[Any]) -> bool:
    """Return True if the dataset of a loader is iterable-style."""
    return isinstance(loader.dataset, IterableDataset)


def index_sampler_of(loader: DataLoader[Any]) -> Any:
    """Return what yields the requests to the dataset: batches of indices, or indices."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


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

    def __iter__(self) -> Iterator[Any]:
        # torch asks for the first batch after persistent workers have done what they were asked
        # in an iteration that was left early: only now they may see the next scope.
        self.announce()
        yield from self.iteration.batches()

    def __len__(self) -> int:
        return len(self.iteration.index_sampler)


class LoaderIterator:
    """The batches of one iteration, fetched in its scope; the iteration counts them."""

    def __init__(self, batches: Any, iteration: Iteration, requests: Requests) -> None:
        self._batches, self._iteration, self._requests = batches, iteration, requests
        self._returned = 0  # batches, and errors in their place
        self._is_over = requests.scope is None  # no worker is needed any more

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
            if not self._is_over:  # torch may wait for ever for what a killed worker began to send
                raise_if_killed(self._batches)
            batch = next(self._batches)
        except StopIteration as end:
            self._is_over = True
            if self._returned < iteration.requested and not requests.is_iterable:
                raise RuntimeError(
                    "fastseed.data.loader: collate_fn must not raise StopIteration, which torch "
                    "takes for the end of the epoch"
                ) from end
            iteration.finish()
            raise
        except BaseException as error:
            requests.has_failed = True
            self._returned += 1
            iteration.deliver(self._batches, has_arrived=False)
            if isinstance(error, Exception):
                raise_if_killed(self._batches)
            raise
        finally:
            thread_scope.set(before)
        self._returned += 1
        iteration.deliver(self._batches, has_arrived=True)
        return batch


def raise_if_killed(batches: Any) -> None:
    """Raise RuntimeError if a worker of torch's iterator ended otherwise than by itself."""
    killed = killed_workers(batches)
    if killed:
        raise RuntimeError(
            f"fastseed.data.loader: {', '.join(killed)}, and the batches that it was reading are "
            "lost; iterate again, which starts new workers: a ResumableLoader that loads its own "
            "state_dict() continues with the first batch that was not delivered"
        )


def killed_workers(batches: Any) -> list[str]:
    """Return a text for each worker of torch's iterator that was killed or failed."""
    found = []
    for number, process in enumerate(getattr(batches, "_workers", ())):
        if code := process.exitcode:  # None while it runs, 0 if it ended by itself
            how = f"was killed by signal: {-code}" if code < 0 else f"exited unexpectedly: {code}"
            found.append(f"worker {number} (pid {process.pid}) {how}")
    return found


class TorchLoader:
    """torch's DataLoader over one iteration, or over one after another if workers persist."""

    def __init__(self, loader: DataLoader[Any], iteration: Iteration, seeder: Seeder) -> None:
        self._requests = Requests(iteration, loader)
        self._requests.announce()
        self._generator, dataset = loader.generator, loader.dataset
        share = None
        if isinstance(dataset, Seekable):
            ranks = seeder.data_rank, seeder.data_world_size
            share = Share(loader.batch_size or 1, *ranks, loader.drop_last)
        settings = settings_of(loader)
        if not self._requests.is_iterable:
            settings = {k: v for k, v in settings.items() if k not in _OF_SAMPLERS}
            if loader.batch_sampler is None:
                settings |= {"sampler": self._requests, "batch_size": None}
            else:
                settings["batch_sampler"] = self._requests
        settings["dataset"] = ScopedDataset(dataset, share)
        if self._requests.scope is not None:
            workers = WorkerSeeder.from_seeder(seeder, iteration.name)
            init = WorkerInit(self._requests.scope, loader.worker_init_fn, workers)
            settings["worker_init_fn"] = init
        self._torch = DataLoader(**settings)

    @property
    def is_usable(self) -> bool:
        """Return True if persistent workers can serve another iteration."""
        killed = killed_workers(self._torch._iterator)
        if killed:
            logger.warning("fastseed.data.loader: %s; new workers are started", ", ".join(killed))
        return self._torch.persistent_workers and not (killed or self._requests.has_failed)

    def start(self, iteration: Iteration) -> LoaderIterator:
        """Return an iterator over the batches of ``iteration``."""
        self._requests.iteration = iteration
        if self._requests.is_iterable:
            self._requests.announce()
        own = self._generator
        self._torch.generator = iteration.generator() if own is None else own
        before = thread_scope.get()
        try:
            thread_scope.set(iteration.scope)
            return LoaderIterator(iter(self._torch), iteration, self._requests)
        finally:
            thread_scope.set(before)


def settings_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """Return the arguments that make another DataLoader like ``loader``."""
    found = {name: getattr(loader, name) for name in _PARAMETERS if hasattr(loader, name)}
    sampler, batches = found.pop("sampler"), found.pop("batch_sampler")
    if is_iterable(loader):
        return found  # torch makes the samplers
    made_by_torch = type(batches) is BatchSampler and batches.sampler is sampler
    if batches is not None and not (made_by_torch and loader.batch_size is not None):
        for name in ("batch_size", "drop_last"):
            del found[name]
        return {**found, "batch_sampler": batches}
    order = {"shuffle": True} if _is_shuffle(sampler, loader) else {"sampler": sampler}
    return {**found, **order}


def _is_shuffle(sampler: Any, loader: DataLoader[Any]) -> bool:
    """Return True for the sampler that DataLoader makes of ``shuffle=True``."""
    dataset: Any = loader.dataset
    return (
        type(sampler) is RandomSampler
        and sampler.data_source is dataset
        and sampler.generator is loader.generator
        and not sampler.replacement
        and sampler.num_samples == len(dataset)
    )
