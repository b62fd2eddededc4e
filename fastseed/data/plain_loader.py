"""DataLoaders whose randomness follows the job: each iteration takes its scope from the seeder."""

from __future__ import annotations

import inspect
from collections.abc import Sized
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

from .._backend.compile import eager
from .._utils import validation
from ..derivation import streams
from ..seeder.seeder import Seeder
from .iteration import Iteration, samplers_in, users_epoch
from .iteration_scope import keyed_seeder
from .sampler import ShuffleSampler
from .torch_loader import CurrentIteration, Pool, index_sampler_of, settings_of


class Loader(DataLoader[Any]):
    """A :class:`torch.utils.data.DataLoader` that follows ``reseed``; :func:`loader` makes it.

    Args:
        dataset: a map-style or iterable-style dataset, no DataPipe.
        batch_size: as for DataLoader, like all that follow; :func:`loader` says what differs.
        shuffle: True for a :class:`ShuffleSampler`.
        sampler: yields the indices.
        batch_sampler: yields lists of indices.
        arguments: the others, in DataLoader's order.
        keywords: the others, by name.

    Example:
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = fastseed.data.Loader(range(10), batch_size=4, shuffle=True)
        >>> fastseed.reseed(1, 7)
        >>> list(batches)
        [tensor([5, 0, 7, 2]), tensor([6, 9, 3, 8]), tensor([1, 4])]
    """

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
        if isinstance(dataset, (IterDataPipe, MapDataPipe)):
            rule = "a dataset: torch has deprecated DataPipes; wrap its samples in a Seekable"
            raise validation.type_error("data.loader", "dataset", rule, dataset)
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
        self._pool: Pool | None = None  # of persistent workers

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iterations, whatever the epoch of ``reseed``.

        Only scripts that count epochs without :func:`fastseed.reseed` need it.

        Args:
            epoch: [0, 2**32).

        Raises:
            TypeError, ValueError: ``epoch`` has the wrong type or is out of range.
        """
        self._epoch = validation.check_int(
            "data.Loader.set_epoch", "epoch", epoch, 0, streams.MAX_EPOCH
        )

    @eager
    def __iter__(self) -> Any:
        seeder = keyed_seeder("data.loader")
        task, epoch = self._task_and_epoch(seeder)
        iterator, _ = self._start(Iteration(index_sampler_of(self), seeder, task, epoch), seeder)
        return iterator

    def _task_and_epoch(self, seeder: Seeder) -> tuple[int, int]:
        """Return those of the seeder, unless the user set an epoch here or on the sampler."""
        scope = seeder.scope
        if scope is None:
            raise RuntimeError("fastseed.data.loader: call fastseed.reseed(task, epoch) first")
        chosen = self._epoch
        if chosen is None:
            chosen = users_epoch(samplers_in(index_sampler_of(self)))
        return scope.task, scope.epoch if chosen is None else chosen

    def _start(self, iteration: Iteration, seeder: Seeder) -> tuple[Any, CurrentIteration]:
        """Return torch's iterator over the batches of an iteration, and where it takes them."""
        pool, self._pool = self._pool, None
        if pool is None or not pool.can_continue():
            pool = Pool(self, seeder.data_rank, seeder.data_world_size)
        iterator = pool.start(iteration)
        self._pool = pool if self.persistent_workers else None
        return iterator, pool.current


def loader(dataset: Any, *arguments: Any, **keywords: Any) -> Loader:
    """Make a DataLoader whose order, workers and dataset follow :func:`fastseed.reseed`.

    It differs from a :class:`torch.utils.data.DataLoader` in these points:

    - Each ``iter()`` takes task and epoch from the last ``reseed``, or the epoch from
      :meth:`Loader.set_epoch` or the sampler's ``set_epoch`` if the script calls one of them. Two
      iterations in one scope are the same. Samplers that have ``set_scope`` or ``set_epoch`` are
      notified, also inside others.
    - ``shuffle=True`` uses a :class:`ShuffleSampler`: ranks share the epoch's order. With
      ``drop_last`` no sample is repeated. Other samplers are kept; torch's, unless they have a
      generator, draw their order from a stream named "loader", and those of other libraries draw
      from the global generators in streams of this scope.
    - The main process's generators do not advance, except for what the dataset and ``collate_fn``
      draw without workers.
    - In each worker Python, NumPy, torch, registered generators and those that the dataset holds
      get their own streams in each epoch, before ``worker_init_fn`` runs. Two loaders in one scope
      have the same worker streams, so give validation a task of its own. With ``in_order=False``
      the timing decides which worker reads which batch.
    - A dataset that raises StopIteration is an error, not the end of the epoch.

    Args:
        dataset: a map-style or iterable-style dataset, no DataPipe.
        arguments: as for DataLoader.
        keywords: as for DataLoader.

    Returns:
        A :class:`Loader`. Iterating it raises RuntimeError before ``init`` and ``reseed``, and
        ValueError under scheme ``"fwr13y"``.

    Raises:
        TypeError, ValueError: as DataLoader raises them.

    Example:
        >>> import fastseed
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = fastseed.data.loader(range(10), batch_size=4, shuffle=True)
        >>> fastseed.reseed(1, 7)
        >>> list(batches)
        [tensor([5, 0, 7, 2]), tensor([6, 9, 3, 8]), tensor([1, 4])]
    """
    return Loader(dataset, *arguments, **keywords)


def prepare(loader: DataLoader[Any]) -> Loader:
    """Make a :func:`loader` with the settings of an existing DataLoader, which is not changed.

    The RandomSampler that ``shuffle=True`` made becomes a :class:`ShuffleSampler`; any other
    sampler is kept.

    Args:
        loader: a :class:`torch.utils.data.DataLoader`; a :class:`Loader` is returned as it is.

    Returns:
        A :class:`Loader`.

    Raises:
        TypeError: ``loader`` is not a DataLoader, or of a class with its own way to iterate.

    Example:
        >>> import fastseed, torch
        >>> existing = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> fastseed.data.prepare(existing).sampler
        ShuffleSampler(10, drop_last=False, shuffle=True, name='shuffle')
    """
    if isinstance(loader, Loader):
        return loader
    validation.check_instance(
        "data.prepare", "loader", loader, DataLoader, "a torch.utils.data.DataLoader"
    )
    kind = type(loader)
    for name in ("__iter__", "_get_iterator"):
        if getattr(kind, name) is not getattr(DataLoader, name):
            rule = f"a DataLoader without its own {name}"
            raise validation.type_error("data.prepare", "loader", rule, loader)
    return Loader(**settings_of(loader))


def _can_shuffle(dataset: Any) -> bool:
    """Return True for a map-style dataset that is not empty; torch raises for the others."""
    return (
        not isinstance(dataset, IterableDataset) and isinstance(dataset, Sized) and len(dataset) > 0
    )
