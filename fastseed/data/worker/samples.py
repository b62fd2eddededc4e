"""Random numbers that belong to a sample or a batch, whichever process makes it."""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex
from weakref import ref

import numpy as np
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from ..._backend.compile import eager
from ..._utils import StateDict, validation
from ...derivation import blocks, context, scopes, streams
from ...derivation.shared_use import StreamUsers
from ...seeder.seeder import current_seeder
from . import scope
from .scope import DatasetWrapper, Fetched, IterationScope, ScopeInSharedMemory, read_samples
from .seeding import WorkerSeeder, moved_since, states_of
from .streams import SampleStreams, read_in_streams, sample_of, torch_generator

Indices = Sequence[SupportsIndex]
Transform = Callable[..., object]

_FUNCTION = "data.per_sample"
_BATCH = "data.per_batch"
_NAME = "sample"  # the stream of the form that leaves all generators alone

_users: StreamUsers[PerSample] = StreamUsers(
    "fastseed.data.per_sample: two datasets are read in task %d, epoch %d, and sample i of both "
    "has the same random numbers: wrap them as one, per_sample(ConcatDataset([a, b])), or give one "
    "a name, per_sample(b, name='b'), or reseed with another task for evaluation; to share the "
    "numbers on purpose, give both one name",
    lambda one: one._wrapped,
)


_MAKE: dict[str, Callable[[int], object]] = {
    "numpy": np.random.default_rng,
    "torch": torch_generator,
}


class PerSample(DatasetWrapper, Dataset[object]):
    """A dataset whose samples have their own random numbers; ``per_sample`` makes it.

    Its length and its public attributes are those of the dataset.
    """

    _generator: str | None
    _transform: Transform | None
    _name: str | None
    _scope: ScopeInSharedMemory
    _seeder: WorkerSeeder | None  # from the pickle that started this process
    _streams: SampleStreams | None
    _checked_in: int  # the process whose first batch was searched for draws of the dataset

    def __init__(
        self, dataset: object, generator: str | None, transform: Transform | None, name: str | None
    ) -> None:
        own = {"_generator": generator, "_transform": transform, "_name": name, "_checked_in": 0}
        super().__init__(dataset, **own, _scope=ScopeInSharedMemory(), _seeder=None, _streams=None)

    def __repr__(self) -> str:
        return f"per_sample({self._wrapped!r}, {self._generator!r}, name={self._name!r})"

    def __getstate__(self) -> StateDict:
        is_sent = scope.is_spawning() and (self._seeder is not None or context.seeder is not None)
        seeder = self._current_seeder() if is_sent else None
        return {**self.__dict__, "_streams": None, "_seeder": seeder}

    def __copy__(self) -> DatasetWrapper:
        copied = super().__copy__()
        copied.__dict__["_scope"] = copy.deepcopy(self._scope)  # set_epoch is of one of them
        return copied

    def set_scope(self, task: int, epoch: int) -> None:
        """Set the task and epoch of the next samples, also in workers; a ``Loader`` does it."""
        at = scopes.check_scope("data.PerSample.set_scope", task, epoch, 0)
        self._scope.write(IterationScope(at.task, at.epoch, 0, self._scope.number + 1))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next samples, [0, 2**32), in the task of the last ``reseed``."""
        at = None if context.seeder is None else context.seeder.scope
        self.set_scope(0 if at is None else at.task, epoch)

    def _task_and_epoch(self) -> tuple[int, int]:
        at = scope.current_scope() or (self._scope.read() if self._scope.number else None)
        if at is not None:
            return at.task, at.epoch
        seeder = current_seeder(_FUNCTION) if get_worker_info() is None else None
        of_job = None if seeder is None else scope.epoch_scope(seeder, _FUNCTION)
        if of_job is None:
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: the epoch is not known: iterate the dataset with "
                "fastseed.data.Loader, or call its set_epoch(epoch) before each iteration, or, "
                "without workers, fastseed.reseed(task, epoch)"
            )
        return of_job.task, of_job.epoch

    def _current_seeder(self) -> WorkerSeeder:
        worker = scope.worker
        sent = self._seeder if worker is None else worker.seeder
        return sent or WorkerSeeder.from_seeder(current_seeder(_FUNCTION))

    def _current_streams(self) -> SampleStreams:
        (task, epoch), seeder, held = self._task_and_epoch(), self._current_seeder(), self._streams
        where = seeder, task, epoch, self._name
        if held is None or held.where != where:
            searched = {"dataset": self._wrapped, "transform": self._transform}
            held = SampleStreams(where, **(searched if self._generator is None else {}))
            self._streams = held
            self._enter_scope(task, epoch)
        return held

    def _enter_scope(self, task: int, epoch: int) -> None:
        """Log a warning if another dataset has the same random numbers in this scope."""
        if self._name is None:
            _users.warn_if_shared(self, task, epoch, self._generator)

    def __getitem__(self, index: SupportsIndex) -> object:
        return self._fetch((index,), is_one=True)

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> Any:
        return self._fetch(indices)

    @eager
    def _fetch(self, indices: Iterable[SupportsIndex], is_one: bool = False) -> object:
        current = self._current_streams()
        indices = indices if isinstance(indices, (list, tuple)) else list(indices)
        with blocks.around_samples():
            if self._generator is not None:
                samples = self._read_with_generators(current, indices)
            else:
                read = functools.partial(self._read_in_streams, current, indices)
                samples = read_in_streams(_FUNCTION, current, read)
        got = samples[0] if is_one else samples
        if scope.has_per_batch:
            scope.fetched.set(Fetched(current.where, ref(self), indices, got))
        return got

    def _read_in_streams(self, current: SampleStreams, indices: Indices) -> list[object]:
        transform = self._transform
        samples = iter(() if transform is None else self._read_without_draws(current, indices))

        def read(index: SupportsIndex) -> object:
            current.reseed(*sample_of(_FUNCTION, index, self))
            sample = self._wrapped[index] if transform is None else transform(next(samples))
            if not current.is_settled:  # the dataset may have made generators just now
                current.settle()
            return sample

        return read_samples(read, indices)

    def _read_without_draws(self, current: SampleStreams, indices: Indices) -> list[object]:
        """Read a batch; RuntimeError if the first one of this process draws random numbers."""
        if self._checked_in == os.getpid():
            return self._read_batch(indices)
        before, batch = states_of(current.others), self._read_batch(indices)
        if drawn := moved_since(before):
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: with transform=, the dataset must draw no random numbers, "
                f"since a batch is read at once, but it drew from {', '.join(map(repr, drawn))}; "
                "let transform draw them, or leave transform= out"
            )
        self._checked_in = os.getpid()
        return batch

    def _read_with_generators(self, current: SampleStreams, indices: Indices) -> list[object]:
        make, transform, dataset = _MAKE[str(self._generator)], self._transform, self._wrapped
        samples = iter(()) if transform is None else iter(self._read_batch(indices))

        def read(index: SupportsIndex) -> object:
            where = current.scope, *sample_of(_FUNCTION, index, self)
            blocks.enter_sample(*where)
            generator = make(streams.sample_stream(where[0], _NAME, *where[1:]).key())
            if transform is None:
                return dataset.__getitem__(index, generator)
            return transform(next(samples), generator)

        return read_samples(read, indices)

    def _read_batch(self, indices: Indices) -> list[object]:
        """Return what the dataset has for a batch of indices, in one call if it can."""
        fetch = getattr(self._wrapped, "__getitems__", None)
        if fetch is None:
            return read_samples(self._wrapped.__getitem__, indices)
        samples = list(read_samples(fetch, (indices,))[0])
        if len(samples) != len(indices):
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: __getitems__ of the dataset must return a sample for each "
                f"of {len(indices)} indices, got {len(samples)}"
            )
        return samples


def per_sample(
    dataset: Any,
    generator: str | None = None,
    *,
    transform: Transform | None = None,
    name: str | None = None,
) -> Any:
    """Wrap a dataset so that a sample's random numbers depend on its index, not on who fetches it.

    Without ``generator``, all generators of the process and of the dataset are set before each
    ``dataset[index]``, and restored afterwards in the main process, but for registered callables.
    With ``generator``, ``dataset.__getitem__(index, generator)`` gets a new one for each sample.

    Wrap a ``Subset`` or ``ConcatDataset``, not its parts: the index is that of the result. One that
    comes twice in an epoch has the same random numbers twice, unless it is a ``Repeat``.

    Args:
        dataset: a map-style dataset, indexed by integers of [0, 2**64).
        generator: None; ``"numpy"`` for a ``numpy.random.Generator``; ``"torch"`` for a CPU
            ``torch.Generator``.
        transform: a function of a sample, or of a sample and the generator, that alone has random
            numbers: a batch is read in one call of ``__getitems__`` of the dataset, which must not
            draw. None: the dataset has them.
        name: None, or the name of the dataset's own streams.

    Returns:
        A map-style dataset, with the length and attributes of ``dataset``.

    Raises:
        TypeError, ValueError: an argument has the wrong type or value; or what gets the generator
            does not take one.
        RuntimeError: when a sample is fetched and the epoch is not known, another thread reads
            samples, or the dataset draws beside ``transform``.

    Examples:
        >>> import fastseed
        >>> class Noise(list):
        ...     def __getitem__(self, index, rng):
        ...         return int(rng.integers(100))
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> fastseed.reseed(1, 0)
        >>> noise = fastseed.data.per_sample(Noise(range(5)), "numpy")
        >>> first = [noise[i] for i in range(5)]
        >>> [noise[i] for i in (4, 3)] == [first[4], first[3]]
        True
    """
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        rule = "a map-style dataset: samples of an iterable one have no index"
        raise validation.type_error(_FUNCTION, "dataset", rule, dataset)
    if transform is not None and not callable(transform):
        raise validation.type_error(_FUNCTION, "transform", "a function of a sample", transform)
    if generator is not None:
        validation.check_choice(_FUNCTION, "generator", generator, tuple(_MAKE))
        argument, given = "transform", transform
        rule = "a function of (sample, generator)"
        if given is None:
            argument, given = "dataset.__getitem__", dataset.__getitem__
            rule = "a function of (index, generator)"
        try:
            inspect.signature(given).bind(0, None)
        except (TypeError, ValueError) as error:
            raise validation.type_error(_FUNCTION, argument, rule, given) from error
    if name is not None:
        scopes.check_name(_FUNCTION, name)
    return PerSample(dataset, generator, transform, name)


class PerBatch:
    """A ``collate_fn`` with the random numbers of its batches; ``per_batch`` makes it."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        scope.has_per_batch = True
        self._collate = collate
        self._held: Any = None, None  # the streams of one process and epoch

    def __reduce__(self) -> tuple[object, ...]:
        return PerBatch, (self._collate,)

    @eager
    def __call__(self, samples: Any) -> Any:
        """Return the batch of the samples that the dataset has just returned."""
        batch = scope.fetched.get()
        scope.fetched.set(None)
        if batch is None or not (batch.is_of_loader or batch.samples is samples):
            raise RuntimeError(
                f"fastseed.{_BATCH}: the samples of this batch are not known: use "
                "fastseed.data.Loader or steps, or wrap the dataset, per_sample(dataset), and give "
                "the loader per_batch(collate) itself; a batch is collated once"
            )
        if not len(batch.indices):
            rule = "a batch must have a sample, whose place its random numbers have"
            raise ValueError(f"fastseed.{_BATCH}: {rule}, got none: leave out empty batches")
        place = sample_of(_BATCH, batch.indices[0], batch.dataset())
        here = os.getpid(), batch.where
        if self._held[0] != here:
            owner = getattr(self._collate, "__self__", self._collate)  # of a bound method
            self._held = here, SampleStreams(batch.where, collate=owner)
        read = functools.partial(self._call, self._held[1], place, samples)
        with blocks.around_samples():
            return read_in_streams(_BATCH, self._held[1], read, restores=True)

    def _call(self, current: SampleStreams, place: tuple[int, int], samples: Any) -> Any:
        batch = streams.sample_stream(current.scope, "batch", *place)
        current.reseed(0, 0, batch.scope())  # the key of the batch is the scope of its streams
        result = self._collate(samples)
        if not current.is_settled and (made := current.settle()):
            raise RuntimeError(
                f"fastseed.{_BATCH}: collate must have its generators before it is called, but "
                f"its call made {', '.join(made)}: pass it no seed, or draw from the global ones"
            )
        return result


def per_batch(collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a ``collate_fn`` so that what it draws depends on the batch, not on who makes it.

    Before each call all generators of the process and of ``collate`` are set by task, epoch and
    the index of the batch's first sample, and afterwards restored. The samples come from
    ``per_sample``, or through ``Loader`` or ``steps``, where those of an iterable dataset have
    their position.

    Args:
        collate: a function of a list of samples. Numbers that each row is to have whatever the
            batch size and the ranks belong into the ``transform`` of ``per_sample``.

    Returns:
        The ``collate_fn`` of a loader.

    Raises:
        TypeError: ``collate`` cannot be called.
        RuntimeError: from the loader, if it is not known which samples a batch has, or
            ``collate`` makes generators when it is called.

    Examples:
        >>> import fastseed, torch
        >>> from fastseed.data import Loader, per_batch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> fastseed.reseed(1, 0)
        >>> masks = per_batch(lambda samples: torch.rand(len(samples)) < 0.15)
        >>> a, b = (list(Loader(range(8), 4, num_workers=n, collate_fn=masks)) for n in (0, 2))
        >>> torch.equal(torch.cat(a), torch.cat(b))
        True
    """
    if not callable(collate):
        raise validation.type_error(_BATCH, "collate", "a function of samples", collate)
    return PerBatch(collate)
