"""Seed DataLoader workers: their own streams for every generator, in every epoch.

A child of ``os.fork`` in a worker continues in the streams of its parent (docs/several-ranks.md).
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch.utils.data import get_worker_info

from ..._backend import derive
from ..._utils import validation
from ..._utils.log import warn_once
from ...derivation import context, place, scopes, streams
from ...derivation.place import Place
from ...derivation.rank_fields import SameRank
from ...generators import discovery
from ...generators.adapter import GeneratorAdapter, reseed_each
from ...generators.default import DefaultGenerators
from ...generators.setters import tell_epoch
from ...random.bank import StreamBank
from ...random.keyed import leave_inherited
from ...seeder.errors import ReseedError
from ...seeder.registry import Registration, adapter_for
from ...seeder.seeder import Seeder
from . import scope
from .scope import DatasetWrapper, IterationScope, ScopeInSharedMemory, read_samples, wrapped

GENERATORS = DefaultGenerators()  # of this process, for all its threads

_FUNCTION = "data.worker_init_fn"


def found_in(
    dataset: object, entries: tuple[Registration, ...], name: str = "dataset"
) -> tuple[Registration, ...]:
    """Return what ``discover`` finds, as if it were registered under its path.

    Generators of ``entries`` are left out. A path that is already a name gets a prime.
    """
    taken = {*scopes.OWN_NAMES, *(entry.name for entry in entries)}
    groups = (discovery.generators_of(entry.generator) for entry in entries)
    made = []
    for path, generator in discovery.discover(dataset, name, itertools.chain(*groups), wrapped):
        while path in taken:
            path += "'"
        taken.add(path)
        made.append(Registration(path, generator, adapter_for(generator), 0))
    return tuple(made)


class WorkerSeeder(NamedTuple):
    """The picklable part of a ``Seeder`` that DataLoader workers receive.

    It comes in the pickle of the dataset, so a generator of both is still one object.
    """

    master_seed: int
    rank: int
    entries: tuple[Registration, ...]
    name: str | None = None  # of the loader

    @classmethod
    def from_seeder(cls, seeder: Seeder, name: str | None = None) -> WorkerSeeder:
        entries = seeder.generators.registry.generators
        return cls(seeder.place.master_seed, seeder.data_rank, entries, name)

    def __reduce__(self) -> tuple[object, ...]:
        kept = [entry for entry in self.entries if _can_pickle(entry)]
        if len(kept) < len(self.entries):
            warn_once(
                "fastseed: workers are started without these registered generators, which cannot "
                "be pickled: %s; with the start method 'fork' they would have them",
                tuple(entry.name for entry in self.entries if entry not in kept),
            )
        entries = [
            (e.name, e.generator, e.rank_field, getattr(e.adapter, "bits", 31)) for e in kept
        ]
        return _rebuild_seeder, (entries, self.master_seed, self.rank, self.name)


def _rebuild_seeder(entries: list[Any], master_seed: int, rank: int, name: str | None) -> Any:
    made = (Registration(n, g, adapter_for(g, bits), field) for n, g, field, bits in entries)
    return WorkerSeeder(master_seed, rank, tuple(made), name)


def is_on_device(entry: Registration) -> bool:
    """Return True for a bank on a device, which a forked worker must not touch."""
    return isinstance(entry.generator, StreamBank) and entry.generator.device.type != "cpu"


def _can_pickle(entry: Registration) -> bool:
    try:
        return not is_on_device(entry) and bool(pickle.dumps(entry.generator))
    except Exception:  # anything that a __reduce__ raises
        return False


class WorkerInit:
    """A ``worker_init_fn``: reseeds a worker when it starts and when an iteration begins."""

    def __init__(
        self,
        source: ScopeInSharedMemory | IterationScope,  # of the main process; or one for ever
        user_init: Callable[[int], object] | None = None,  # runs once, between two reseedings
        seeder: WorkerSeeder | None = None,  # None: that of this process
    ) -> None:
        self.source, self._user_init = source, user_init
        self.seeder = seeder or WorkerSeeder.from_seeder(context.current(_FUNCTION))
        self._worker_id = 0
        self.states: list[Any] = []  # after a resume in mid-epoch, until a sample was read
        self.scope: IterationScope | None = None  # of a fastseed loader, for all threads

    def __reduce__(self) -> tuple[object, ...]:
        return WorkerInit, (self.source, self._user_init, self.seeder)

    def __call__(self, worker_id: int) -> None:
        """Seed this worker; DataLoader calls it once in each."""
        self._worker_id = worker_id
        self.reseed()
        if get_worker_info() is not None and scope.worker is None:
            scope.worker = self
            scope.thread_scope.set(None)  # of an iteration in which this process was forked
        if self._user_init is not None:
            self._user_init(worker_id)
            self.reseed()  # seeds of its own would be those of this worker's first epoch alone

    def reseed(self) -> None:
        """Give every generator its stream of this iteration; ReseedError names those that fail."""
        source, info = self.source, get_worker_info()
        at = source.read() if isinstance(source, ScopeInSharedMemory) else source
        if info is not None and self.scope is not None:
            tell_epoch(wrapped(info.dataset), *at[:2])
        found = () if info is None else found_in(info.dataset, self.seeder.entries)
        start = derive.scope_key(self.seeder.master_seed, at.task, at.epoch, at.start)
        named = streams.named_scope(start, self.seeder.name)
        entries = [e for e in (*self.seeder.entries, *found) if not is_on_device(e)]
        fields, number = SameRank(self.seeder.rank), self._worker_id + 1
        fields.registered = {e.name: scopes.SHARED for e in entries if e.shared}
        here = Place(self.seeder.master_seed, fields, None, named, {}, number)
        if info is not None:
            place.worker = here
            leave_inherited()
        if failures := reseed_each(_adapters_of(entries), here.stream):
            raise ReseedError(failures)
        self.scope = at if isinstance(source, ScopeInSharedMemory) else None
        self.states = states_of(entries) if self.scope is not None and at.start else []


def snapshot(entries: Iterable[Registration]) -> Callable[[], None]:
    """Return a function that restores the default generators, and those of ``entries``, of now."""
    of_defaults = GENERATORS.save()
    saved = [(entry.adapter, entry.adapter.save()) for entry in entries]

    def restore() -> None:
        GENERATORS.restore(of_defaults)
        for adapter, state in saved:
            adapter.restore(state)

    return restore


def _adapters_of(entries: Iterable[Registration]) -> list[tuple[str, GeneratorAdapter]]:
    return [*GENERATORS.adapters.items(), *((entry.name, entry.adapter) for entry in entries)]


def states_of(entries: Iterable[Registration]) -> list[Any]:
    """Return the states of the default generators and those of ``entries``, for ``moved_since``."""
    return [(name, adapter, adapter.state()) for name, adapter in _adapters_of(entries)]


def moved_since(states: list[Any]) -> list[str]:
    """Return the names of the generators that were drawn from."""
    pairs = [(name, old, adapter.state()) for name, adapter, old in states if old is not None]
    return [name for name, old, new in pairs if new is not None and not torch.equal(old, new)]


class ScopedDataset(DatasetWrapper):
    """What torch reads for a loader; in a worker a new iteration first reseeds all generators."""

    _share: Any  # the layout and the rank by which a ``Seekable`` cuts itself; else None
    _loader: Any  # its WorkerSeeder and batch size; None without per_batch
    _was_iterated: bool

    def __init__(self, dataset: object, share: object = None, loader: object = None) -> None:
        noted = loader if scope.has_per_batch else None
        super().__init__(dataset, _share=share, _loader=noted, _was_iterated=False)

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:  # torch and a user's worker_init_fn ask isinstance
        return type(self._wrapped)

    def __getitem__(self, index: object) -> object:
        _reseed_if_new()
        sample = read_samples(self._wrapped.__getitem__, (index,))[0]
        return self._note(index if isinstance(index, list) else [index], sample)

    def __getitems__(self, indices: list[object]) -> object:
        _reseed_if_new()
        fetch = getattr(self._wrapped, "__getitems__", None)
        if fetch is not None:
            return self._note(indices, read_samples(fetch, (indices,))[0])
        return self._note(indices, read_samples(self._wrapped.__getitem__, indices))

    def _note(self, indices: Sequence[object], samples: object) -> object:
        """Note for ``per_batch`` what was fetched; what ``per_sample`` noted of it stays."""
        worker = scope.worker
        if worker is not None and worker.states:
            if moved_since(worker.states):
                worker.source.notes[0] = scope.DRAWS
            worker.states = []
        if self._loader is not None:
            note, seeder = scope.fetched.get(), self._loader[0]
            if note is None or note.samples is not samples:
                at = scope.required_scope("data.per_batch")
                where = seeder, at.task, at.epoch, seeder.name
                note = scope.Fetched(where, ref(self), indices, samples)
            scope.fetched.set(note._replace(is_of_loader=True))
        return samples

    def __iter__(self) -> Iterator[object]:
        # A worker that started late may have begun an abandoned iteration in the scope of the
        # next one, so from the second iteration on it is reseeded in any case.
        if scope.worker is not None and self._was_iterated:
            scope.worker.reseed()
        else:
            _reseed_if_new()
        self._was_iterated = True
        own = self._share
        samples = iter(self._wrapped if own is None else self._wrapped._read_share(*own))
        info: Any = get_worker_info()
        if own is None and info is not None and info.dataset is self:
            samples = _noting_first(samples, info.id)
        return samples if self._loader is None else self._numbered(samples)

    def _numbered(self, samples: Iterator[object]) -> Iterator[object]:
        """Yield samples, and note the first position of the batch that each belongs to."""
        at, info = scope.required_scope("data.per_batch"), get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        seeder, size = self._loader
        own = self._share
        # Without a share every rank reads for itself: its positions begin at a multiple of 2**40.
        first, step = (seeder.rank << 40, 1) if own is None else (own[1], own[0].ranks)
        for count, sample in enumerate(samples):
            start = first + at.start + (count // size * workers + worker) * size * step
            scope.fetched.set(None)  # what the dataset itself read
            yield self._note((start,), sample)


def _noting_first(samples: Iterator[object], worker: int) -> Iterator[object]:
    """Yield the samples of a worker, and note where workers 0 and 1 begin with the same."""
    notes = scope.worker.source.notes
    for first in samples:
        with contextlib.suppress(Exception):  # it may have no pickle
            if worker < 2 and not notes[1 + worker]:
                notes[1 + worker] = zlib.crc32(pickle.dumps(first)) + 1
                notes[0] = scope.REPEATS if notes[1] == notes[2] else notes[0]
        yield first
        break
    yield from samples


def _reseed_if_new() -> None:
    """Begin to fetch: reseed a worker if an iteration began since it was last reseeded."""
    scope.fetched.set(None)
    at = None if scope.worker is None else scope.worker.scope
    if at is not None and scope.worker.source.number != at.number:
        scope.worker.reseed()


class _WorkerInitFunction:
    """Seed a DataLoader worker: the ``worker_init_fn`` for a plain torch DataLoader.

    All generators get their streams at the task and epoch of the last ``reseed`` before the workers
    were started; persistent workers keep these. Under ``spawn`` and ``forkserver`` pass this object
    itself: a function of yours that calls it needs ``fork``.

    Args:
        worker_id: the number of the worker, from 0; DataLoader passes it.

    Raises:
        RuntimeError: ``fastseed.init`` or ``reseed`` was not called before.
        ReseedError: some generators failed; all others are reseeded.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> fastseed.reseed(1, 0)
        >>> batches = torch.utils.data.DataLoader(
        ...     range(8), batch_size=4, num_workers=2, worker_init_fn=fastseed.data.worker_init_fn
        ... )
        >>> len(batches)
        2
    """

    def __call__(self, worker_id: int) -> None:
        most = scopes.MAX_WORKER - 1
        _init_at_current_scope()(validation.check_int(_FUNCTION, "worker_id", worker_id, 0, most))

    def __reduce__(self) -> str | tuple[object, ...]:
        return _init_at_current_scope().__reduce__() if scope.is_spawning() else "worker_init_fn"


def _init_at_current_scope() -> WorkerInit:
    at = context.scope_of(context.current(_FUNCTION).place, _FUNCTION)
    return WorkerInit(IterationScope(at.task, at.epoch, 0, 1))


worker_init_fn = _WorkerInitFunction()
