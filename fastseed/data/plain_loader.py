"""DataLoaders whose randomness follows the job: each iteration takes its scope from the seeder."""

from __future__ import annotations

import inspect
from collections.abc import Sized
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    IterDataPipe,
    RandomSampler,
)

from .._backend.compile import eager
from .._utils import validation
from ..derivation import streams
from ..seeder import api
from ..seeder.seeder import Seeder
from .iterable import Dealt, FollowingPipe, Seekable
from .iteration import Indices, Listeners, Plan, Run, View, chain, let_go, lives
from .sampler import ShuffleSampler
from .shared_scope import ScopeCell
from .workers import WorkerSetup, follow

_OURS = ("__iter__", "_get_iterator", "_index_sampler", "_auto_collation")  # of DataLoader
_PARAMETERS = tuple(inspect.signature(DataLoader.__init__).parameters)[1:]


class Loader(DataLoader[Any]):
    """A :class:`torch.utils.data.DataLoader` that follows the job; see :func:`loader`."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        *arguments: Any,
        **keywords: Any,
    ) -> None:
        if shuffle and sampler is None and batch_sampler is None and _can_shuffle(dataset):
            given = inspect.signature(DataLoader.__init__).bind_partial(
                self, dataset, batch_size, shuffle, sampler, batch_sampler, *arguments, **keywords
            )
            drop_last = bool(given.arguments.get("drop_last", False))
            sampler, shuffle = ShuffleSampler(dataset, drop_last=drop_last), None
        super().__init__(
            dataset, batch_size, shuffle, sampler, batch_sampler, *arguments, **keywords
        )
        self._epoch: int | None = None
        self._listeners = Listeners(chain(self._index_sampler))
        self._living: tuple[Indices, ScopeCell] | None = None  # of workers that outlive an epoch

    @classmethod
    def of(cls, existing: DataLoader[Any]) -> Any:
        """A loader of this class with every setting of ``existing``: see :func:`prepare`."""
        if isinstance(existing, cls):
            return existing
        if not isinstance(existing, DataLoader):
            raise TypeError(
                "fastseed.data.prepare: loader must be a torch.utils.data.DataLoader, "
                f"got {validation.describe(existing)} of type {type(existing).__name__}"
            )
        own = [] if isinstance(existing, Loader) else _overrides(type(existing))
        if own:
            raise TypeError(
                "fastseed.data.prepare: loader must iterate as DataLoader does, "
                f"got a {type(existing).__name__}, which has its own {' and '.join(own)}"
            )
        made = cls(**_settings(existing))
        for name, value in vars(existing).items():  # what users hung on it
            if name not in vars(made):
                setattr(made, name, value)
        return made

    def set_epoch(self, epoch: int) -> None:
        """Iterations from now on are of this epoch, whatever the seeder's.

        For scripts that count epochs without :func:`fastseed.reseed`; it is not needed otherwise.
        """
        self._epoch = validation.check_int(
            "data.Loader.set_epoch", "epoch", epoch, 0, streams.MAX_EPOCH
        )

    # ------------------------------------------------------------------ an iteration

    @eager
    def __iter__(self) -> Any:
        seeder = api.current("data.loader")
        return self._start(self._run(seeder, *self._coordinates(seeder)), seeder)

    def _coordinates(self, seeder: Seeder) -> tuple[int, int]:
        """Task and epoch: the seeder's, unless the user set an epoch here or on the sampler."""
        scope = seeder.scope
        if scope is None:
            raise RuntimeError("fastseed.data.loader: call fastseed.reseed(task, epoch) first")
        if seeder.scheme != "philox-v1":
            raise ValueError(
                f"fastseed.data.loader: scheme must be 'philox-v1', got {seeder.scheme!r}; "
                "the predecessor's has no streams for workers"
            )
        chosen = self._listeners.chosen() if self._epoch is None else self._epoch
        return scope.task, scope.epoch if chosen is None else chosen

    def _run(self, seeder: Seeder, task: int, epoch: int) -> Run:
        """The iteration that begins now."""
        return Run(self._index_sampler, self._listeners, Plan(task, epoch, 0), seeder)

    def _start(self, run: Run, seeder: Seeder) -> Any:
        """torch's iterator, with what is ours in the place of what the user gave."""
        self._listeners.tell(run.plan)
        generator = run.generator if self.generator is None else self.generator
        if self._iterator is not None and not lives(self._iterator):
            self._iterator._shutdown_workers()  # type: ignore[attr-defined]
            self._iterator = self._living = None
        if self._iterator is not None and self._living is not None:
            indices, cell = self._living
            let_go(self._iterator)
            cell.write(*run.plan)
            indices.run = run
            self._iterator._reset(View(self, generator=generator))
            return self._iterator
        indices, cell = Indices(run), ScopeCell()
        cell.write(*run.plan)
        view: Any = View(
            self,
            dataset=self._source(seeder, cell),
            worker_init_fn=WorkerSetup(cell, self.worker_init_fn),
            generator=generator,
            _index_sampler=indices,
        )
        iterator = DataLoader._get_iterator(view)
        if self.persistent_workers:
            self._iterator, self._living = iterator, (indices, cell)
        return iterator

    def _source(self, seeder: Seeder, cell: ScopeCell) -> Any:
        """The data set as it is fetched from."""
        dataset: Any = self.dataset
        if isinstance(dataset, Seekable):
            dataset = Dealt(
                dataset,
                cell,
                batch=self.batch_size or 1,
                rank=seeder.data_rank,
                world_size=seeder.data_world_size,
                drop_last=self.drop_last,
            )
        if isinstance(dataset, IterDataPipe):
            return FollowingPipe(dataset, cell)
        return follow(dataset, cell)


def loader(dataset: Any, *arguments: Any, **keywords: Any) -> Loader:
    """A DataLoader whose order, workers and data set follow ``reseed``.

        seeder.init(master_seed=42)
        batches = fastseed.data.loader(dataset, batch_size=32, shuffle=True, num_workers=4)
        for epoch in range(epochs):
            seeder.reseed(1, epoch)
            for batch in batches:

    Arguments and their errors are those of :class:`torch.utils.data.DataLoader`. What differs:

    - Each ``iter()`` takes task and epoch from the last ``reseed`` (RuntimeError before it), or the
      epoch from :meth:`Loader.set_epoch` or the sampler's ``set_epoch`` where the script calls one
      of them itself. Two iterations of one scope are the same. Samplers that have ``set_scope`` or
      ``set_epoch`` are told, also inside others.
    - ``shuffle=True`` is a :class:`ShuffleSampler`: ranks share the epoch's order. With
      ``drop_last`` no rank repeats a sample. Any other sampler stays what it is; those of torch
      that have no generator of their own draw their order from a stream named "loader", and
      samplers of other makes see the global generators in streams of this scope while they draw.
    - No number is drawn from the generators of the main process, but what the data set and
      ``collate_fn`` draw without workers.
    - In each worker Python, NumPy, torch, registered generators and those that the data set holds
      get streams of their own, in each epoch, before ``worker_init_fn`` runs. Loaders of one scope
      have the same: give validation a task of its own. With ``in_order=False`` it depends on the
      moment which worker has which batch.
    """
    return Loader(dataset, *arguments, **keywords)


def prepare(loader: DataLoader[Any]) -> Loader:
    """A :func:`loader` with every setting of an existing DataLoader, which stays as it is.

    The RandomSampler that ``shuffle=True`` made becomes a :class:`ShuffleSampler`; one that was
    made any other way is kept, as is every other sampler.

    Raises:
        TypeError: it is no DataLoader, or of a class that iterates in its own way.
    """
    made: Loader = Loader.of(loader)
    return made


def _can_shuffle(dataset: Any) -> bool:
    """Whether it is of the map style and not empty; torch says what is wrong otherwise."""
    return (
        not isinstance(dataset, IterableDataset) and isinstance(dataset, Sized) and len(dataset) > 0
    )


def _overrides(kind: type[DataLoader[Any]]) -> list[str]:
    return [name for name in _OURS if getattr(kind, name) is not getattr(DataLoader, name)]


def _settings(existing: DataLoader[Any]) -> dict[str, Any]:
    """The arguments that make ``existing`` again."""
    found = {name: getattr(existing, name) for name in _PARAMETERS if hasattr(existing, name)}
    found["dataset"] = _unwrapped(existing.dataset)
    sampler, batches = existing.sampler, existing.batch_sampler
    for name in ("sampler", "batch_sampler"):
        del found[name]
    if isinstance(existing, IterableDataset) or existing._dataset_kind == 1:
        return found  # torch makes the samplers
    made_by_torch = type(batches) is BatchSampler and batches.sampler is sampler
    if batches is not None and not (made_by_torch and existing.batch_size is not None):
        for name in ("batch_size", "drop_last"):
            del found[name]
        return {**found, "batch_sampler": batches}
    if _is_shuffle(sampler, existing):
        return {**found, "shuffle": True}
    return {**found, "sampler": sampler}


def _unwrapped(dataset: Any) -> Any:
    """A DataPipe without the wrapper that DataLoader put around it, and will again."""
    wrapper = type(dataset).__name__ in (
        "_IterDataPipeSerializationWrapper",
        "_MapDataPipeSerializationWrapper",
    )
    return dataset._datapipe if wrapper else dataset


def _is_shuffle(sampler: Any, existing: Any) -> bool:
    """Whether it is what DataLoader makes of ``shuffle=True``."""
    return (
        type(sampler) is RandomSampler
        and sampler.data_source is existing.dataset
        and sampler.generator is existing.generator
        and not sampler.replacement
        and sampler._num_samples is None
    )
