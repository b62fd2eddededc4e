"""DataLoaders whose randomness follows the job: each iteration takes its scope from the seeder."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

from .._backend.compile import eager
from .._utils import validation
from ..seeder.seeder import Seeder
from . import framework_checks
from .iteration import Iteration, samplers_in, users_epoch
from .iteration_scope import IterationScope, keyed_seeder
from .sampler import ShuffleSampler
from .torch_loader import LoaderIterator, TorchLoader, index_sampler_of, settings_of


class Loader(DataLoader[Any]):
    """A DataLoader whose order, workers and dataset follow ``fastseed.reseed``.

    It differs from a ``torch.utils.data.DataLoader`` in these points:

    - Each ``iter()`` takes task and epoch from the last ``reseed``, or the epoch from the sampler's
      ``set_epoch`` if the script calls it. Two iterations in one scope are the same. Samplers that
      have ``set_scope`` or ``set_epoch`` are notified, also inside others.
    - ``shuffle=True`` uses a ``ShuffleSampler``, which ranks share. Other samplers are kept;
      torch's, unless they have a generator, draw their order from a stream named "loader", and
      those of other libraries from the global generators in streams of this scope.
    - The main process's generators do not advance, except for what the dataset and ``collate_fn``
      draw without workers.
    - In each worker Python, NumPy, torch, registered generators and those that the dataset holds
      get their own streams in each epoch, before ``worker_init_fn`` runs. Two loaders in one scope
      have the same worker streams, so give validation a task of its own.
    - A dataset that raises StopIteration is an error, not the end of the epoch.

    Iterating raises RuntimeError before ``init`` and ``reseed``.

    Args:
        dataset: a map-style or iterable-style dataset, no DataPipe.
        batch_size: as for DataLoader, as are all that follow.
        shuffle: True for a ``ShuffleSampler``.
        sampler: yields the indices.
        batch_sampler: yields lists of indices.
        settings: DataLoader's other arguments, by name.

    Raises:
        TypeError, ValueError: as DataLoader raises them.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = fastseed.data.loader(range(10), batch_size=4, shuffle=True)
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
        **settings: Any,
    ) -> None:
        if isinstance(dataset, (IterDataPipe, MapDataPipe)):
            rule = "a dataset: torch has deprecated DataPipes; wrap its samples in a Seekable"
            raise validation.type_error("data.loader", "dataset", rule, dataset)
        is_iterable = isinstance(dataset, IterableDataset)
        if shuffle and sampler is None and batch_sampler is None and not is_iterable:
            drop_last = bool(settings.get("drop_last", False))
            sampler, shuffle = ShuffleSampler(dataset, drop_last=drop_last), None
        super().__init__(dataset, batch_size, shuffle, sampler, batch_sampler, **settings)
        self._iterations = 0
        self._torch: TorchLoader | None = None  # with persistent workers

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Refuse ``accelerator.prepare``, which reads this and would make a loader of its own."""
        return framework_checks.refuse_preparation(self)

    @eager
    def __iter__(self) -> Any:
        seeder = keyed_seeder("data.loader")
        scope = self._next_scope(seeder)
        return self._start(Iteration(index_sampler_of(self), seeder, scope), seeder)

    def _next_scope(self, seeder: Seeder) -> IterationScope:
        """Return that of the seeder, unless the user set an epoch on the sampler."""
        scope = seeder.scope
        if scope is None:
            raise RuntimeError("fastseed.data.loader: call fastseed.reseed(task, epoch) first")
        chosen = users_epoch(samplers_in(index_sampler_of(self)))
        epoch = scope.epoch if chosen is None else chosen
        return IterationScope(scope.task, epoch, 0, self._iterations + 1)

    def _start(self, iteration: Iteration, seeder: Seeder) -> LoaderIterator:
        """Return an iterator over the batches of an iteration."""
        framework_checks.warn_of_unprepared(self)
        self._iterations += 1
        kept, self._torch = self._torch, None
        if kept is None or not kept.is_usable:
            kept = TorchLoader(self, iteration, seeder)
        iterator = kept.start(iteration)
        if self.persistent_workers:
            self._torch = kept
        return iterator


loader = Loader
"""The class ``Loader``, by the name of a function."""


def prepare(loader: DataLoader[Any]) -> Loader:
    """Make a ``loader`` with the settings of an existing DataLoader, which is not changed.

    The RandomSampler that ``shuffle=True`` made becomes a ``ShuffleSampler``; any other
    sampler is kept.

    Args:
        loader: a ``torch.utils.data.DataLoader``; a ``Loader`` is returned as it is.

    Returns:
        A ``Loader``.

    Raises:
        TypeError: ``loader`` is not a DataLoader, or of a class with its own way to iterate.

    Examples:
        >>> import fastseed, torch
        >>> existing = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> fastseed.data.prepare(existing).sampler
        ShuffleSampler(10, drop_last=False, shuffle=True, name='shuffle')
    """
    if isinstance(loader, Loader):
        return loader
    return Loader(**settings_of(check_prepared("data.prepare", loader)))


def check_prepared(function: str, loader: Any) -> DataLoader[Any]:
    """Return ``loader`` if a DataLoader with its settings does what it does."""
    validation.check_instance(
        function, "loader", loader, DataLoader, "a torch.utils.data.DataLoader"
    )
    if type(loader).__iter__ not in (DataLoader.__iter__, Loader.__iter__):
        rule = "a DataLoader without its own __iter__"
        raise validation.type_error(function, "loader", rule, loader)
    return loader  # type: ignore[no-any-return]
