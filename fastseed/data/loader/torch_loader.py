"""torch's DataLoader under a loader: the requests to it, its batches, and its dead workers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.utils import data as torch_data
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ..._backend import private_torch
from ..._backend.compile import eager
from ..._utils.log import logger
from ...seeder.fork_rng import open_blocks
from ..worker.samples import PerSample
from ..worker.scope import ScopeInSharedMemory, fetched, thread_scope
from ..worker.seeding import ScopedDataset, WorkerInit, WorkerSeeder
from ..worker.streams import CheckedCollate
from .iteration import Iteration
from .states import collate_placed, load_place

Settings = dict[str, Any]  # the arguments of a DataLoader

_OF_SAMPLERS = ("self", "batch_size", "drop_last", "sampler", "batch_sampler", "shuffle")
_PARAMETERS = inspect.signature(DataLoader.__init__).parameters
_OTHERS = [name for name in _PARAMETERS if name not in _OF_SAMPLERS]


class TorchLoader:
    """torch's DataLoader over one iteration, or over one after another if workers persist."""

    def __init__(self, loader: DataLoader[Any], iteration: Iteration) -> None:
        self._requests = IndexRequests(iteration, loader)
        self._requests.announce()
        self._generator, dataset, collate = loader.generator, loader.dataset, loader.collate_fn
        self._is_iterable = iteration.plan.source is None
        self._origin = own, workers = _origin_of(iteration)
        of_torch = torch_data.default_collate, torch_data.default_convert
        settings = without_samplers(loader)
        if self._is_iterable:
            settings |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
        elif loader.batch_sampler is None:
            settings |= {"sampler": self._requests, "batch_size": None}
        else:
            settings["batch_sampler"] = self._requests
        settings["dataset"] = ScopedDataset(dataset, own, (workers, loader.batch_size or 1))
        if isinstance(dataset, PerSample) and collate not in of_torch:
            checked = vars(loader).get("_checked_collate")
            if checked is None or checked.collate is not collate:
                checked = vars(loader)["_checked_collate"] = CheckedCollate(collate)
            settings["collate_fn"] = checked
        own_init = loader.worker_init_fn
        if iteration.places is not None:
            settings["collate_fn"] = partial(collate_placed, collate, loader.batch_size)
            own_init = partial(load_place, iteration.places.states, own_init)
        if self._requests.scope is not None:
            settings["worker_init_fn"] = WorkerInit(self._requests.scope, own_init, workers)
        self._torch = DataLoader(**settings)

    def can_serve(self, iteration: Iteration) -> bool:
        """Return True if persistent workers can serve another iteration, of its seeder."""
        killed = killed_workers(private_torch.current_iterator(self._torch))
        if killed:
            logger.warning("fastseed.data.Loader: %s; new workers are started", ", ".join(killed))
        is_placed = iteration.places is not None and any(iteration.places.states)
        is_whole = not (killed or self._requests.has_failed or is_placed)
        return is_whole and self._origin == _origin_of(iteration)

    def start(self, iteration: Iteration) -> LoaderIterator:
        self._requests.iteration = iteration
        if self._is_iterable:
            self._requests.announce()
        has_workers = self._requests.scope is not None  # else nothing reads what torch draws
        made = iteration.generator() if has_workers else torch.Generator("cpu")
        self._torch.generator = self._generator or made
        before = thread_scope.get()
        try:
            thread_scope.set(iteration.scope)
            return LoaderIterator(self._torch, iteration, self._requests)
        finally:
            thread_scope.set(before)


def _origin_of(iteration: Iteration) -> tuple[object, WorkerSeeder]:
    return iteration.plan.share, WorkerSeeder.from_seeder(iteration.seeder, iteration.name)


class IndexRequests:
    """The index sampler of torch's DataLoader: yields the indices of the current iteration."""

    def __init__(self, iteration: Iteration, loader: DataLoader[Any]) -> None:
        self.iteration = iteration
        self.scope = ScopeInSharedMemory() if loader.num_workers else None
        self.has_failed = False  # a worker may have died, for which torch would wait

    def announce(self) -> None:
        if self.scope is not None:
            self.scope.write(self.iteration.scope)

    def __iter__(self) -> Iterator[object]:
        # torch asks for the first batch after persistent workers have done what they were asked
        # in an iteration that was left early: only now they may see the next scope.
        self.announce()
        yield from self.iteration.requests()


class LoaderIterator:
    """The batches of one iteration, fetched in its scope; the iteration counts them."""

    def __init__(self, loader: Any, iteration: Iteration, requests: IndexRequests) -> None:
        self._loader, self._batches = loader, iter(loader)
        self._iteration, self._requests = iteration, requests
        self._returned = 0  # batches, and errors in their place

    def __iter__(self) -> LoaderIterator:
        return self

    @eager
    def __next__(self) -> Any:
        iteration, requests = self._iteration, self._requests
        if requests.iteration is not iteration:
            raise RuntimeError(
                "fastseed.data.Loader: this iteration ended when the loader was iterated again: "
                "its workers persist and serve one iteration at a time"
            )
        before, blocks = thread_scope.get(), open_blocks()
        try:
            thread_scope.set(iteration.scope)
            # torch may wait for ever for what a killed worker began to send
            if requests.scope is not None and not iteration.is_over:
                raise_if_killed(self._batches)
            self._returned += 1
            batch, places = next(self._batches), iteration.places
            if places is not None:
                while not places.take(batch):
                    batch = next(self._batches)
                batch = batch.batch
        except StopIteration as end:
            if self._returned <= iteration.requested:
                raise RuntimeError(
                    "fastseed.data.Loader: collate_fn must not raise StopIteration, which torch "
                    "takes for the end of the epoch"
                ) from end
            if self._returned == 1 and iteration.may_begin_at_end:
                self._batches, self._returned = iter(self._loader), 0
                iteration.may_begin_at_end = False
                return next(self)
            iteration.is_over = True
            raise
        except BaseException as error:
            requests.has_failed = True
            if isinstance(error, Exception):
                raise_if_killed(self._batches)
            raise
        finally:
            thread_scope.set(before)
            fetched.set(None)
        if open_blocks() != blocks:
            raise RuntimeError(
                "fastseed.data.Loader: the dataset or sampler must not yield in a block of keyed "
                "or fork_rng, which is open in the loop then: open one for each sample"
            )
        # With workers an error may be that of a batch, of a worker or a timeout: torch knows.
        received = private_torch.received_batches(self._batches)
        received = self._returned if received is None else received
        iteration.deliver(received if iteration.places is None else iteration.places.delivered)
        if requests.scope is not None:
            requests.scope.warn()
        if iteration.plan.has_own_place:
            iteration.is_over = private_torch.has_ended(self._batches)
        return batch


def raise_if_killed(batches: object) -> None:
    """Raise RuntimeError if a worker of torch's iterator ended otherwise than by itself."""
    killed = killed_workers(batches)
    if killed:
        raise RuntimeError(
            f"fastseed.data.Loader: {', '.join(killed)}, and the batches that it was reading are "
            "lost; iterate again, which starts new workers: a Loader that loads its own "
            "state_dict() continues with the first batch that was not delivered"
        )


def killed_workers(batches: object) -> list[str]:
    """Return a text for each worker of torch's iterator that was killed or failed."""
    found = []
    for number, process in enumerate(private_torch.workers_of(batches)):
        if code := process.exitcode:  # None while it runs, 0 if it ended by itself
            how = f"was killed by signal: {-code}" if code < 0 else f"exited unexpectedly: {code}"
            found.append(f"worker {number} (pid {process.pid}) {how}")
    return found


def settings_of(loader: DataLoader[Any]) -> Settings:
    """Return the arguments that make another DataLoader like ``loader``."""
    found, sampler, batches = without_samplers(loader), loader.sampler, loader.batch_sampler
    dataset: Any = loader.dataset
    made_by_torch = type(batches) is BatchSampler and batches.sampler is sampler
    if batches is not None and not (made_by_torch and loader.batch_size is not None):
        return {**found, "batch_sampler": batches}
    found |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if isinstance(dataset, IterableDataset):
        return found  # torch makes the samplers
    is_of_shuffle = (  # the sampler that DataLoader makes of shuffle=True
        type(sampler) is torch_data.RandomSampler
        and sampler.data_source is dataset
        and sampler.generator is loader.generator
        and not sampler.replacement
        and sampler.num_samples == len(dataset)
    )
    return {**found, **({"shuffle": True} if is_of_shuffle else {"sampler": sampler})}


def without_samplers(loader: DataLoader[Any]) -> Settings:
    """Return those of the arguments that do not choose samplers."""
    return {name: getattr(loader, name) for name in _OTHERS if hasattr(loader, name)}
