"""DataLoaders whose randomness follows the job: each iteration takes its scope from the seeder."""

from __future__ import annotations

import functools
import inspect
import logging
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    IterDataPipe,
    MapDataPipe,
    RandomSampler,
    SequentialSampler,
)

from ..._backend.compile import eager
from ..._utils import validation
from ...derivation import scopes
from ...derivation.shared_use import StreamUsers
from ...seeder.seeder import Seeder
from .. import framework_checks
from ..order.samplers import samplers_in, without_generator
from ..order.shuffle import ShuffleSampler
from ..order.slots import SlotSampler
from ..worker.per_sample import PerSample
from ..worker.scope import IterationScope, epoch_scope, keyed_seeder, thread_scope
from ..worker.seeding import ScopedDataset, WorkerInit, WorkerSeeder
from .epochs import users_epoch
from .iteration import Iteration, LoaderIterator, Requests, killed_workers
from .seekable import Seekable, Share
from .shared_order import index_sampler_of, is_iterable, samples_of

logger = logging.getLogger("fastseed")

Settings = dict[str, Any]  # the arguments of a DataLoader

_PARAMETERS = tuple(inspect.signature(DataLoader.__init__).parameters)[1:]
_OF_SAMPLERS = ("batch_size", "drop_last", "sampler", "batch_sampler", "shuffle")
_ORDER = "shuffle"  # the name of an order that has none of its own

_stream_users: StreamUsers[Loader] = StreamUsers(
    "fastseed.data.loader: two loaders are iterated in task %d, epoch %d, and what their workers "
    "draw is the same: if both datasets draw, give one loader name=, or reseed with another task "
    "for evaluation"
)
_order_users: StreamUsers[Loader] = StreamUsers(
    "fastseed.data.loader: two shuffled loaders of equal size are iterated in task %d, epoch %d, "
    "and have the same order: give one of them name=, or reseed with another task for evaluation"
)


class Loader(DataLoader[Any]):
    """A DataLoader whose order, workers and dataset follow ``fastseed.reseed``.

    It differs from a ``torch.utils.data.DataLoader`` in these points:

    - Each ``iter()`` takes task and epoch from the last ``reseed``, or the epoch from the sampler's
      ``set_epoch`` if the script calls it. Two iterations in one scope are the same. Samplers that
      have ``set_scope`` or ``set_epoch`` are notified, also inside others; a ``ShuffleSampler``
      asks for the scope itself.
    - ``shuffle=True`` uses a ``ShuffleSampler``, which ranks share. Other samplers are kept;
      torch's, unless they have a generator, draw their order from a stream named "loader", and
      those of other libraries from the global generators in streams of this scope.
    - The main process's generators do not advance, except for what the dataset and ``collate_fn``
      draw without workers.
    - In each worker Python, NumPy, torch, registered generators and those that the dataset holds
      get their own streams in each epoch, before ``worker_init_fn`` runs.
    - Two loaders that are iterated in one scope have the same worker streams, and for as many
      samples the same shuffled order, which logs a warning unless they have one dataset. Give one
      of them a ``name``, or validation a task of its own.
    - Without workers the dataset draws from the main process's generators, as in torch: what the
      loop draws afterwards depends on how much it drew (``per_sample`` avoids that).
    - A dataset that raises StopIteration is an error, not the end of the epoch.

    Iterating raises RuntimeError before ``init``.

    Args:
        dataset: a map-style or iterable-style dataset, no DataPipe.
        batch_size: as for DataLoader, as are all that follow.
        shuffle: True for a ``ShuffleSampler``.
        sampler: yields the indices.
        batch_sampler: yields lists of indices.
        name: None, or the name of the loader's own streams and order.
        settings: DataLoader's other arguments, by name.

    Raises:
        TypeError, ValueError: ``dataset`` is no dataset, ``name`` no name, or as DataLoader raises
            them.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = fastseed.data.loader(range(10), batch_size=4, shuffle=True)
        >>> fastseed.reseed(1, 7)
        >>> list(batches)
        [tensor([5, 0, 7, 2]), tensor([6, 9, 3, 8]), tensor([1, 4])]
    """

    _path = "data.loader"

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        *,
        name: str | None = None,
        **settings: Any,
    ) -> None:
        _check_dataset(self._path, dataset)
        if name is not None:
            scopes.check_name(self._path, name)
        if not (batch_size is None or isinstance(batch_size, int)):
            raise validation.type_error(self._path, "batch_size", "an integer or None", batch_size)
        if shuffle is not None:
            shuffle = validation.check_bool(self._path, "shuffle", shuffle)
        drop_last = validation.check_bool(self._path, "drop_last", settings.get("drop_last", False))
        is_iterable = isinstance(dataset, IterableDataset)
        if shuffle and sampler is None and batch_sampler is None and not is_iterable:
            sampler = ShuffleSampler(dataset, drop_last=drop_last, name=name or _ORDER)
            shuffle = None
            if settings.get("generator") is not None:
                logger.warning(
                    "fastseed.%s: the order of shuffle=True follows the master seed, not the "
                    "generator; for another order, give fastseed.init another seed",
                    self._path,
                )
        super().__init__(dataset, batch_size, shuffle, sampler, batch_sampler, **settings)
        self.name = name
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
        return self._start(Iteration(self, seeder, scope), seeder)

    def _next_scope(self, seeder: Seeder) -> IterationScope:
        """Return that of the seeder, unless the user set an epoch on the sampler."""
        scope = seeder.scope
        if scope is None:
            raise RuntimeError(f"fastseed.{self._path}: call fastseed.reseed(task, epoch) first")
        return self._scope_in(scope.task, scope.epoch)

    def _scope_in(self, task: int, epoch: int) -> IterationScope:
        chosen = users_epoch(samplers_in(index_sampler_of(self)))
        return IterationScope(task, epoch if chosen is None else chosen, 0, self._iterations + 1)

    def _start(self, iteration: Iteration, seeder: Seeder) -> LoaderIterator:
        """Return an iterator over the batches of an iteration."""
        has_slots = isinstance(self.batch_sampler, SlotSampler)
        framework_checks.warn_of_unprepared(self, has_slots)
        self._iterations += 1
        self._note_streams(iteration.scope, seeder)
        kept, self._torch = self._torch, None
        if kept is None or not kept.is_usable:
            kept = TorchLoader(self, iteration, seeder)
        iterator = kept.start(iteration)
        if self.persistent_workers:
            self._torch = kept
        return iterator

    def _note_streams(self, at: IterationScope, seeder: Seeder) -> None:
        """Log a warning if another loader has the same streams or order, or every epoch has."""
        sampler = samples_of(index_sampler_of(self))
        samplers = samplers_in(index_sampler_of(self))
        is_random = any(isinstance(s, ShuffleSampler) and s.shuffle for s in samplers)
        is_random = is_random or bool(without_generator(samplers))
        in_scope_of_init = not (at.task or at.epoch or epoch_scope(seeder))
        if is_random and in_scope_of_init and self._iterations > 1:
            _warn_repeated(self._path)
        if isinstance(self.dataset, PerSample):
            self.dataset.enter_scope(at.task, at.epoch)
        elif self.num_workers and self.name is None:
            _stream_users.warn_if_shared(self, at.task, at.epoch, at.start)
        if isinstance(sampler, ShuffleSampler) and sampler.describe_order() == _ORDER:
            _order_users.warn_if_shared(self, at.task, at.epoch, sampler.n)


class TorchLoader:
    """torch's DataLoader over one iteration, or over one after another if workers persist."""

    def __init__(self, loader: DataLoader[Any], iteration: Iteration, seeder: Seeder) -> None:
        self._requests = Requests(iteration, loader)
        self._requests.announce()
        self._generator, dataset = loader.generator, loader.dataset
        self._is_iterable = is_iterable(loader)
        share = None
        if isinstance(dataset, Seekable):
            ranks = seeder.data_rank, seeder.data_world_size
            share = Share(loader.batch_size or 1, *ranks, loader.drop_last)
        settings = settings_of(loader)
        if not self._is_iterable:
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
        if self._is_iterable:
            self._requests.announce()
        own = self._generator
        self._torch.generator = iteration.generator() if own is None else own
        before = thread_scope.get()
        try:
            thread_scope.set(iteration.scope)
            return LoaderIterator(iter(self._torch), iteration, self._requests)
        finally:
            thread_scope.set(before)


@functools.cache
def _warn_repeated(function: str) -> None:
    logger.warning(
        "fastseed.%s: iterated again in the scope of fastseed.init, so its order and random "
        "numbers repeat: call fastseed.reseed(task, epoch) before each epoch, or use "
        "fastseed.data.steps",
        function,
    )


def _check_dataset(function: str, dataset: Any) -> None:
    rule = None
    if isinstance(dataset, DataLoader):
        rule = (
            "a dataset, not a DataLoader: write fastseed.data.prepare(loader), or "
            "fastseed.data.steps(loader, epochs) to resume"
        )
    elif isinstance(dataset, (IterDataPipe, MapDataPipe)):
        rule = "a dataset: torch has deprecated DataPipes; wrap its samples in a Seekable"
    elif not (isinstance(dataset, IterableDataset) or hasattr(dataset, "__getitem__")):
        rule = "a dataset with __getitem__, or a torch.utils.data.IterableDataset"
    if rule is not None:
        raise validation.type_error(function, "dataset", rule, dataset)


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
    return Loader(**prepared_settings("data.prepare", loader))


def prepared_settings(function: str, loader: Any) -> Settings:
    """Return the arguments that make a ``Loader`` of a DataLoader; TypeError if none can."""
    validation.check_instance(
        function, "loader", loader, DataLoader, "a torch.utils.data.DataLoader"
    )
    if type(loader).__iter__ not in (DataLoader.__iter__, Loader.__iter__):
        rule = (
            "a DataLoader without its own __iter__ (what accelerator.prepare returns has one: use "
            "AcceleratedJob.train of fastseed.integrations.accelerate)"
        )
        raise validation.type_error(function, "loader", rule, loader)
    named = {"name": loader.name} if isinstance(loader, Loader) else {}
    return settings_of(loader) | named


def slot_settings(function: str, loader: Any, slots: int) -> Settings:
    """Return the arguments that make a ``Loader`` of the slots of this rank."""
    settings = prepared_settings(function, loader)
    plain = Loader(**settings)  # with the order of shuffle=True
    if is_iterable(plain) or plain.batch_size is None:
        rule = "of a map-style dataset, with batch_size and no batch_sampler, for slots"
        raise validation.value_error(function, "loader", rule, loader)
    order: Any = plain.sampler
    dataset: Any = plain.dataset
    if type(order) is SequentialSampler:
        order = ShuffleSampler(dataset, shuffle=False)
    if type(order).__iter__ is not ShuffleSampler.__iter__:
        rule = "a ShuffleSampler or MixtureSampler for slots, or none, or shuffle=True"
        raise validation.value_error(function, "loader.sampler", rule, order)
    drop_last = plain.drop_last or order.drop_last
    batches = SlotSampler(order, plain.batch_size, slots, drop_last)
    kept = {name: value for name, value in settings.items() if name not in _OF_SAMPLERS}
    return {**kept, "batch_sampler": batches}


def settings_of(loader: DataLoader[Any]) -> Settings:
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
