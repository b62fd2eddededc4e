"""Randomness that belongs to a sample, whoever fetches it."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from .._backend import derive_ops
from .._backend.compile import eager
from .._utils import validation
from .._utils.errors import reseed_error
from ..derivation import context, streams
from ..derivation.streams import Stream
from ..generators.adapter import LOW64, GeneratorAdapter
from ..generators.torch_rng import TorchGenerator
from ..seeder import api
from ..seeder.registry import Registration
from . import shared_scope, worker_seeding
from .discovery import found_in
from .shared_scope import ScopeCell, Wrapper
from .worker_seeding import Job

MAX_INDEX = streams.MAX_INDEX
MAX_OCCURRENCE = streams.MAX_WORKER

_NAME = "sample"  # the stream of the form that leaves all generators alone


class Repeat(int):
    """The index of a sample that comes again in an epoch.

    An int like any other, with ``occurrence``: 1 when the sample comes for the second time, and
    so on. A plain int stands for occurrence 0.
    """

    occurrence: int

    def __new__(cls, index: int, occurrence: int = 1) -> Repeat:
        index = validation.check_int("data.Repeat", "index", index, 0, MAX_INDEX)
        repeat = super().__new__(cls, index)
        repeat.occurrence = validation.check_int(
            "data.Repeat", "occurrence", occurrence, 1, MAX_OCCURRENCE
        )
        return repeat

    def __reduce__(self) -> tuple[Any, ...]:
        return Repeat, (int(self), self.occurrence)

    def __repr__(self) -> str:
        return f"Repeat({int(self)}, occurrence={self.occurrence})"

    __str__ = int.__repr__  # in file names, as any index


class _Counting(Sampler[Any]):
    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "sampler" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def __iter__(self) -> Iterator[Any]:
        seen: dict[int, int] = {}

        def count(index: Any) -> int:
            number = operator.index(index)
            before = seen.get(number, 0)
            seen[number] = before + 1
            occurrence = max(before, getattr(index, "occurrence", 0))
            return Repeat(number, occurrence) if occurrence else number

        for drawn in self.sampler:
            batch = isinstance(drawn, (list, tuple))
            yield [count(index) for index in drawn] if batch else count(drawn)


def count_occurrences(sampler: Any) -> Sampler[Any]:
    """``sampler``, but indices that it yields again come as :class:`Repeat`.

    So :func:`per_sample` gives each time that an oversampled data set's item comes a randomness of
    its own. Counts begin anew with each iteration. Ranks count for themselves: where they cut one
    sequence of indices, wrap what is cut, not the pieces.

    Args:
        sampler: yields integers, or lists of them. What else it has (``len``, ``set_epoch``)
            stays.
    """
    if not hasattr(sampler, "__iter__"):
        raise TypeError(
            "fastseed.data.count_occurrences: sampler must be iterable, "
            f"got {validation.describe(sampler)} of type {type(sampler).__name__}"
        )
    return _Counting(sampler)


# ------------------------------------------------------------------ keys


class _Streams:
    """What samples of one (task, epoch) draw from. A sample is its index and its occurrence."""

    def __init__(self, owner: Job, task: int, epoch: int) -> None:
        self.owner, self.task, self.epoch = owner, task, epoch
        self.scope = derive_ops.scope_key(owner.master_seed, task, epoch, 0)
        self.process = worker_seeding.process()
        self.own = list(self.process.adapters.items())
        self._names: dict[str, derive_ops.NameKey] = {}
        self.others: tuple[Registration, ...] = ()
        self.settled = False

    def stream(self, name: str, sample: tuple[int, int]) -> Stream:
        """Return the stream of a sample, an index and an occurrence: its key is that of index 0."""
        found = self._names.get(name)
        if found is None:
            found = derive_ops.name_key(self.scope, streams.name_words(name))
            self._names[name] = found
        index, occurrence = sample
        return Stream(found, 0, occurrence, derive_ops.DOMAIN_SAMPLE).numbered(index)

    def look(self, dataset: Any) -> None:
        """Find the generators that the data set holds."""
        entries = tuple(e for e in self.owner.entries if not worker_seeding.out_of_reach(e))
        self.others = (*entries, *found_in(dataset, self.owner.entries))

    def set(self, sample: tuple[int, int]) -> None:
        """Give every generator what belongs to this sample."""
        for name, adapter in self.own:
            adapter.reseed(self.stream(name, sample))
        for entry in self.others:
            stream = self.stream(entry.name, sample)
            if entry.adapter.is_bulk:  # its key is the scope of the members' keys
                key = stream.key()
                stream = streams.stream_in((key & LOW64, key >> 64), entry.name, 0)
            try:
                entry.adapter.reseed(stream)
            except Exception as error:
                raise reseed_error({entry.name: error}) from error

    def save(self) -> Callable[[], None]:
        """What puts back the exact states that there are now."""
        own = self.process.states()
        others = [_saved(entry.adapter) for entry in self.others]

        def restore() -> None:
            self.process.load_states(own)
            for put_back in others:
                put_back()

        return restore


def _saved(adapter: GeneratorAdapter) -> Callable[[], None]:
    state = adapter.state()
    return (lambda: None) if state is None else functools.partial(adapter.load_state, state)


def _make_numpy(key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def _make_torch(key: int) -> torch.Generator:
    generator = torch.Generator("cpu")
    TorchGenerator(generator).seed(key)
    return generator


_MAKE: dict[str, Callable[[int], Any]] = {"numpy": _make_numpy, "torch": _make_torch}


# ------------------------------------------------------------------ the data set


class PerSample(Dataset[Any], Wrapper):
    """A data set whose samples draw what belongs to them; made by :func:`per_sample`.

    Everything but what is described here (``len``, attributes) is the data set's own.
    """

    _cell: ScopeCell
    _job: Job | None  # that came with the pickle
    _streams: _Streams | None
    generator: str | None
    method: str

    def __init__(self, dataset: Any, generator: str | None, method: str) -> None:
        self.__dict__.update(dataset=dataset, generator=generator, method=method)
        self.__dict__.update(_cell=ScopeCell(), _job=None, _streams=None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "dataset" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self.dataset, name, value)  # another transform, say

    def __delattr__(self, name: str) -> None:
        delattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def __repr__(self) -> str:
        kind = "" if self.generator is None else f", generator={self.generator!r}"
        return f"per_sample({self.dataset!r}{kind})"

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_streams": None, "_job": None}
        if worker_seeding.spawning() and (self._job is not None or context.seeder is not None):
            state["_job"] = self._owner()
        return state

    # -------------------------------------------------------------- where it is

    def set_scope(self, task: int, epoch: int) -> None:
        """From now on samples are of this task and epoch, also in workers that live already.

        Under a loader of ours that loader says it, and this changes nothing.
        """
        at = streams.check_coordinates("data.PerSample.set_scope", task, epoch, 0)
        self._cell.write(at.task, at.epoch)

    def set_epoch(self, epoch: int) -> None:
        """:meth:`set_scope` with the task of the last ``reseed``, or 0 before the first one.

        As ``DistributedSampler.set_epoch``: before each iteration, in the main process.
        """
        epoch = shared_scope.check_epoch("data.PerSample.set_epoch", epoch)
        scope = None if context.seeder is None else context.seeder.scope
        self.set_scope(0 if scope is None else scope.task, epoch)

    def _place(self) -> tuple[int, int]:
        place = shared_scope.here()
        if place is not None:
            return place.task, place.epoch
        if self._cell.generation:
            place = self._cell.read()
            return place.task, place.epoch
        scope = None
        if get_worker_info() is None:
            scope = api.current("data.per_sample").scope
        if scope is None:
            raise RuntimeError(
                "fastseed.data.per_sample: it is not known which epoch this is; iterate it with "
                "fastseed.data.loader, or call its set_epoch(epoch) before each iteration, or, "
                "without workers, fastseed.reseed(task, epoch)"
            )
        return scope.task, scope.epoch

    def _owner(self) -> Job:
        known = worker_seeding.kept() or self._job
        if known is not None:
            return known
        seeder = api.current("data.per_sample")
        last = None if self._streams is None else self._streams.owner
        if last is not None and last.is_of(seeder):
            return last
        return Job.of(seeder, "data.per_sample")

    def _now(self) -> _Streams:
        task, epoch = self._place()
        owner, held = self._owner(), self._streams
        if held is None or held.owner is not owner or (held.task, held.epoch) != (task, epoch):
            held = self._streams = _Streams(owner, task, epoch)
            if self.generator is None:
                held.look(self.dataset)
        return held

    # -------------------------------------------------------------- samples

    def _sample(self, index: Any) -> tuple[int, int]:
        """The index and the occurrence that keys are made from."""
        if type(index) is not int:
            try:
                if isinstance(index, bool):
                    raise TypeError
                number = operator.index(index)
            except TypeError as error:
                raise TypeError(
                    "fastseed.data.per_sample: index must be an integer, "
                    f"got {validation.describe(index)} of type {type(index).__name__}"
                ) from error
        else:
            number = index
        if number < 0:
            number += len(self.dataset)
        if not 0 <= number <= MAX_INDEX:
            raise IndexError(
                f"fastseed.data.per_sample: index must be in [0, {MAX_INDEX}], got {number}"
            )
        return number, index.occurrence if isinstance(index, Repeat) else 0

    def __getitem__(self, index: Any) -> Any:
        return self._fetch((index,))[0]

    def __getitems__(self, indices: Any) -> list[Any]:
        """A batch, sample by sample: the data set's own ``__getitems__`` is not used."""
        return self._fetch(indices)

    @eager
    def _fetch(self, indices: Any) -> list[Any]:
        if self.generator is not None:
            make = _MAKE[self.generator]
            method, now = getattr(self.dataset, self.method), self._now()
            return [method(i, make(now.stream(_NAME, self._sample(i)).key())) for i in indices]
        if get_worker_info() is not None:
            return [self._one(i) for i in indices]
        restore = self._now().save()
        try:
            return [self._one(i) for i in indices]
        finally:
            restore()

    def _one(self, index: Any) -> Any:
        sample = self._sample(index)
        now = self._now()
        now.set(sample)
        found = self.dataset[index]
        if not now.settled:  # it may have made generators for itself just now
            now.look(self.dataset)
            now.settled = True
        return found


def per_sample(dataset: Any, generator: str | None = None, *, method: str | None = None) -> Any:
    """``dataset``, where what a sample draws depends on (master seed, task, epoch, index) alone.

    So augmentation is the same for any number of workers and ranks, batch size, prefetching and
    point of resume, and whoever else draws.

        train = fastseed.data.per_sample(dataset)
        batches = fastseed.data.loader(train, batch_size=32, shuffle=True, num_workers=4)

    **Before each** ``dataset[index]`` Python's, NumPy's and torch's CPU generator are set, and so
    are the registered generators and those that the data set holds (see
    :mod:`fastseed.data.discovery`; one that the data set makes while it is used is known from the
    second sample on). In the main process they come back afterwards exactly as they were, also if
    the data set raises; a registered callable cannot. In a worker they stay as the sample left
    them.

    **Or, with** ``generator``, none of them is touched: the data set gets one of its own for each
    sample, a new object every time.

        class Images(Dataset):
            def __getitem__(self, index, rng): ...   # rng.random() etc.

        train = fastseed.data.per_sample(Images(), generator="numpy")

    Task and epoch are those of the iteration of our loaders. Elsewhere: what ``set_epoch(epoch)``
    or ``set_scope(task, epoch)`` of the result said last, which also reaches persistent workers; or
    else, without workers, those of the last ``reseed``.

    ``index`` is what the result is indexed with: put it outside of a ``Subset`` or
    ``ConcatDataset``, not inside, where two parts have an index 0. Where a sampler yields an index
    more than once in an epoch, see :func:`count_occurrences`.

    Args:
        dataset: a map-style data set, indexed by integers of [0, 2**64).
        generator: ``"numpy"`` for a :class:`numpy.random.Generator` (``default_rng(key)``),
            ``"torch"`` for a CPU :class:`torch.Generator`.
        method: with ``generator``, the name of the method to call as ``method(index, rng)``;
            ``"__getitem__"`` unless given.

    Raises:
        TypeError: ``dataset`` is iterable-style, or its method does not take two arguments.
        ValueError: ``generator`` is none of these; ``method`` without it.
        RuntimeError: when a sample is fetched and it is not known in which epoch.
    """
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise TypeError(
            "fastseed.data.per_sample: dataset must have __getitem__: the samples of an iterable "
            "one have no index that their randomness could follow from, whichever worker reads "
            f"them; got {validation.describe(dataset)} of type {type(dataset).__name__}"
        )
    if generator is not None and generator not in _MAKE:
        raise ValueError(
            f"fastseed.data.per_sample: generator must be None or one of {tuple(_MAKE)}, "
            f"got {validation.describe(generator)}"
        )
    if generator is None and method is not None:
        raise ValueError(
            "fastseed.data.per_sample: method must be None without a generator, "
            f"got {validation.describe(method)}"
        )
    method = "__getitem__" if method is None else method
    if generator is not None:
        _check_method(dataset, method)
    return PerSample(dataset, generator, method)


def _check_method(dataset: Any, method: Any) -> None:
    function = getattr(dataset, method, None) if isinstance(method, str) else None
    try:
        if not callable(function):
            raise TypeError("it is not")
        inspect.signature(function).bind(0, None)
    except ValueError:  # it has no signature to look at
        return
    except TypeError as error:
        raise TypeError(
            "fastseed.data.per_sample: method must be the name of a method of dataset that takes "
            f"(index, rng), got {validation.describe(method)}: {error}"
        ) from error
