"""The torch DataLoader behind fastseed's loaders, and the two of its private fields in use."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from .iteration import Iteration
from .iteration_scope import SharedScope
from .scoped_dataset import in_scope
from .seekable import Seekable, ShardedSeekable
from .worker_seeding import WorkerInit

_PARAMETERS = tuple(inspect.signature(DataLoader.__init__).parameters)[1:]


def all_workers_alive(iterator: Any) -> bool:
    """Return True unless a worker of a pool has died, for whose answers torch would wait."""
    return all(worker.is_alive() for worker in iterator._workers)


def count_received(iterator: Any, without_workers: int) -> int:
    """Return how many batches were taken from torch's iterator or failed."""
    return int(getattr(iterator, "_rcvd_idx", without_workers))


def is_iterable(loader: DataLoader[Any]) -> bool:
    """Return True if the dataset of a loader is iterable-style."""
    return isinstance(loader.dataset, IterableDataset)


def index_sampler_of(loader: DataLoader[Any]) -> Any:
    """Return what yields the requests to the dataset: batches of indices, or indices."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


class CurrentIteration:
    """The index sampler of a pool: yields the indices of the iteration that is set."""

    def __init__(self) -> None:
        self.scope = SharedScope()
        self.iteration: Iteration | None = None
        self._announced: Iteration | None = None

    def announce(self) -> None:
        """Write the scope of the iteration for the workers, once."""
        iteration = self.iteration
        if iteration is not None and iteration is not self._announced:
            self._announced = iteration
            self.scope.write(iteration.task, iteration.epoch, iteration.start)

    def __iter__(self) -> Iterator[Any]:
        if self.iteration is not None:
            # torch asks for the first batch after persistent workers have done what they were
            # asked in an iteration that was left early: now they may see the next scope.
            self.announce()
            yield from self.iteration.batches()

    def __len__(self) -> int:
        return 0 if self.iteration is None else len(self.iteration.index_sampler)


class Pool:
    """torch's DataLoader with the workers of one iteration, or of all if they persist."""

    def __init__(self, loader: DataLoader[Any], rank: int, world_size: int) -> None:
        self.current = CurrentIteration()
        self._is_iterable = is_iterable(loader)
        self._generator = loader.generator
        dataset: Any = loader.dataset
        if isinstance(dataset, Seekable):
            dataset = ShardedSeekable(
                dataset,
                _scope=self.current.scope,
                _batch=loader.batch_size or 1,
                _rank=rank,
                _world_size=world_size,
                _drop_last=loader.drop_last,
            )
        settings = settings_of(loader)
        if not self._is_iterable:
            for name in ("batch_size", "drop_last", "sampler", "batch_sampler", "shuffle"):
                settings.pop(name, None)
            own = {"sampler": self.current, "batch_size": None}
            settings |= own if loader.batch_sampler is None else {"batch_sampler": self.current}
        settings["dataset"] = in_scope(dataset, self.current.scope)
        settings["worker_init_fn"] = WorkerInit(self.current.scope, loader.worker_init_fn)
        self._torch = DataLoader(**settings)
        self._persistent: Any = None

    def can_continue(self) -> bool:
        """Return True if there are persistent workers, and all are alive."""
        return self._persistent is not None and all_workers_alive(self._persistent)

    def start(self, iteration: Iteration) -> Any:
        """Return torch's iterator over the batches of ``iteration``."""
        self.current.iteration = iteration
        if self._persistent is None or self._is_iterable:
            self.current.announce()
        own = self._generator
        self._torch.generator = iteration.generator() if own is None else own
        iterator = iter(self._torch)
        if self._torch.persistent_workers:
            self._persistent = iterator
        return iterator


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
    return {
        **found,
        **({"shuffle": True} if _is_shuffle(sampler, loader) else {"sampler": sampler}),
    }


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
