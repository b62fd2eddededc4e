"""Random numbers that belong to a sample, whichever process fetches it."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from .._backend import derive_ops
from .._backend.compile import eager
from .._utils import validation
from .._utils.errors import reseed_error
from ..derivation import context, streams
from ..generators.adapter import LOW64
from ..generators.torch_rng import TorchGenerator
from ..seeder.registry import Registration
from . import worker_seeding
from .discovery import found_in
from .iteration_scope import SharedScope, get_iteration_scope, keyed_seeder
from .occurrences import MAX_INDEX, Repeat
from .worker_seeding import WorkerSeeder
from .wrapper import DatasetWrapper, refused_stop_iteration

_FUNCTION = "data.per_sample"
_NAME = "sample"  # the stream of the form that leaves all generators alone


class _SampleStreams:
    """The streams of the samples of one (task, epoch).

    A sample is its global index and its occurrence; they are the ``index`` and ``worker`` of a
    stream of domain 3 on rank 0.
    """

    def __init__(self, seeder: WorkerSeeder, task: int, epoch: int) -> None:
        self.seeder, self.task, self.epoch = seeder, task, epoch
        self._scope = derive_ops.scope_key(seeder.master_seed, task, epoch, 0)
        self._globals = worker_seeding.default_generators()
        self._name_keys: dict[str, derive_ops.NameKey] = {}
        self._others: tuple[Registration, ...] = ()
        self.is_settled = False

    def stream(self, name: str, sample: tuple[int, int]) -> streams.Stream:
        """Return the stream ``name`` of a sample."""
        name_key = self._name_keys.get(name)
        if name_key is None:
            name_key = derive_ops.name_key(self._scope, streams.name_words(name))
            self._name_keys[name] = name_key
        (key, tweak), (index, occurrence) = name_key, sample
        return streams.Stream((key, tweak ^ index), 0, occurrence, derive_ops.DOMAIN_SAMPLE)

    def find_generators(self, dataset: Any) -> None:
        """Collect what is registered and what the dataset holds."""
        entries = self.seeder.entries
        own = (e for e in entries if not worker_seeding.is_on_device(e))
        self._others = (*own, *found_in(dataset, entries))

    def reseed(self, sample: tuple[int, int]) -> None:
        """Give every generator its stream of this sample."""
        for name, adapter in self._globals.adapters.items():
            adapter.reseed(self.stream(name, sample))
        for entry in self._others:
            stream = self.stream(entry.name, sample)
            if entry.adapter.is_bulk:  # the key is the scope of the members' keys
                key = stream.key()
                stream = streams.stream_in((key & LOW64, key >> 64), entry.name, 0)
            try:
                entry.adapter.reseed(stream)
            except Exception as error:
                raise reseed_error({entry.name: error}) from error

    def save(self) -> Callable[[], None]:
        """Return a function that puts back the exact states that the generators have now."""
        held = self._globals.states()
        others = [(entry.adapter, entry.adapter.state()) for entry in self._others]

        def restore() -> None:
            self._globals.load_states(held)
            for adapter, state in others:
                if state is not None:
                    adapter.load_state(adapter.parse_state(state))

        return restore


def _numpy_generator(key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def _torch_generator(key: int) -> torch.Generator:
    generator = torch.Generator("cpu")
    TorchGenerator(generator).seed(key)
    return generator


_MAKE: dict[str, Callable[[int], Any]] = {"numpy": _numpy_generator, "torch": _torch_generator}


class PerSample(DatasetWrapper, Dataset[Any]):
    """A dataset whose samples have their own random numbers; :func:`per_sample` makes it.

    Its length and its other attributes are those of the dataset.
    """

    generator: str | None
    method: str
    _scope: SharedScope
    _seeder: WorkerSeeder | None  # from the pickle that started this process
    _streams: _SampleStreams | None

    def __init__(self, dataset: Any, generator: str | None, method: str) -> None:
        super().__init__(dataset, generator=generator, method=method)
        self.__dict__.update(_scope=SharedScope(), _seeder=None, _streams=None)

    def __repr__(self) -> str:
        kind = "" if self.generator is None else f", generator={self.generator!r}"
        return f"per_sample({self.dataset!r}{kind})"

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_streams": None, "_seeder": None}
        if worker_seeding.is_spawning() and (
            self._seeder is not None or context.seeder is not None
        ):
            state["_seeder"] = self._current_seeder()
        return state

    # -------------------------------------------------------------- the epoch

    def set_scope(self, task: int, epoch: int) -> None:
        """Set the task and epoch of the next samples, also in workers that are already running.

        Under fastseed's loaders it is not needed and has no effect.

        Args:
            task: [0, 2**24).
            epoch: [0, 2**32).

        Raises:
            TypeError, ValueError: an argument has the wrong type or is out of range.
        """
        at = streams.check_coordinates("data.PerSample.set_scope", task, epoch, 0)
        self._scope.write(at.task, at.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next samples; the task is that of the last ``reseed``, or 0.

        Call it before each iteration, in the main process, as for a ``DistributedSampler``.

        Args:
            epoch: [0, 2**32).

        Raises:
            TypeError, ValueError: ``epoch`` has the wrong type or is out of range.
        """
        epoch = validation.check_int(
            "data.PerSample.set_epoch", "epoch", epoch, 0, streams.MAX_EPOCH
        )
        scope = None if context.seeder is None else context.seeder.scope
        self.set_scope(0 if scope is None else scope.task, epoch)

    def _task_and_epoch(self) -> tuple[int, int]:
        at = get_iteration_scope() or (self._scope.read() if self._scope.generation else None)
        if at is not None:
            return at.task, at.epoch
        scope = context.current(_FUNCTION).scope if get_worker_info() is None else None
        if scope is None:
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: the epoch is not known: iterate the dataset with "
                "fastseed.data.loader, or call its set_epoch(epoch) before each iteration, or, "
                "without workers, fastseed.reseed(task, epoch)"
            )
        return scope.task, scope.epoch

    def _current_seeder(self) -> WorkerSeeder:
        worker = worker_seeding.get_worker()
        if worker is not None:
            return worker.seeder
        if self._seeder is not None:
            return self._seeder
        seeder = keyed_seeder(_FUNCTION)
        last = None if self._streams is None else self._streams.seeder
        return last if last and last.is_current(seeder) else WorkerSeeder.from_seeder(seeder)

    def _current_streams(self) -> _SampleStreams:
        task, epoch = self._task_and_epoch()
        seeder, held = self._current_seeder(), self._streams
        if held is None or held.seeder is not seeder or (held.task, held.epoch) != (task, epoch):
            held = self._streams = _SampleStreams(seeder, task, epoch)
            if self.generator is None:
                held.find_generators(self.dataset)
        return held

    # -------------------------------------------------------------- samples

    def _sample(self, index: Any) -> tuple[int, int]:
        """Return the global index and the occurrence of the sample ``index``."""
        number = index
        if type(index) is not int:
            try:
                if isinstance(index, bool):
                    raise TypeError
                number = operator.index(index)
            except TypeError as error:  # a tensor of several elements, for example
                raise validation.type_error(_FUNCTION, "index", "an integer", index) from error
        if number < 0:
            number += len(self.dataset)
        if not 0 <= number <= MAX_INDEX:
            raise IndexError(
                f"fastseed.{_FUNCTION}: index must be in [0, {MAX_INDEX}], got {number}"
            )
        return number, index.occurrence if isinstance(index, Repeat) else 0

    def __getitem__(self, index: Any) -> Any:
        return self._fetch((index,))[0]

    def __getitems__(self, indices: Any) -> list[Any]:
        """Return a batch, sample by sample; a ``__getitems__`` of the dataset is not used."""
        return self._fetch(indices)

    @eager
    def _fetch(self, indices: Any) -> list[Any]:
        with refused_stop_iteration(_FUNCTION):
            if self.generator is not None:
                make, current = _MAKE[self.generator], self._current_streams()
                method = getattr(self.dataset, self.method)
                return [
                    method(i, make(current.stream(_NAME, self._sample(i)).key())) for i in indices
                ]
            if get_worker_info() is not None:
                return [self._fetch_one(i) for i in indices]
            restore = self._current_streams().save()
            try:
                return [self._fetch_one(i) for i in indices]
            finally:
                restore()

    def _fetch_one(self, index: Any) -> Any:
        sample, current = self._sample(index), self._current_streams()
        current.reseed(sample)
        fetched = self.dataset[index]
        if not current.is_settled:  # the dataset may have made generators just now
            current.find_generators(self.dataset)
            current.is_settled = True
        return fetched


def per_sample(dataset: Any, generator: str | None = None, *, method: str | None = None) -> Any:
    """Wrap a dataset so that a sample's random numbers depend on its index, not on who fetches it.

    They are a function of master seed, task, epoch and index: the same for any number of workers
    and ranks, any batch size and prefetching, before and after resuming.

    Without ``generator``, Python's, NumPy's and torch's CPU generator are set before each
    ``dataset[index]``, and so are registered generators and those that the dataset holds
    (:mod:`fastseed.data.discovery`; one that the dataset makes when it is first used is known from
    the second sample on). In the main process they are restored exactly afterwards, also if the
    dataset raises; a registered callable cannot be restored. With ``generator`` none of them is
    touched: the dataset is called with a new generator for each sample.

    Task and epoch are those of the iteration under fastseed's loaders. Elsewhere they are those of
    the last ``set_epoch(epoch)`` or ``set_scope(task, epoch)`` of the result, which persistent
    workers notice too; or else, without workers, those of the last ``reseed``.

    The index is the one that the result is called with: wrap a ``Subset`` or ``ConcatDataset``, not
    its parts, which all have an index 0. A sampler that yields an index twice in an epoch gives
    both the same random numbers unless it is wrapped in :func:`count_occurrences`. The indices that
    :class:`ShuffleSampler` repeats to fill up the ranks have random numbers of their own.

    Args:
        dataset: a map-style dataset, indexed by integers of [0, 2**64).
        generator: None; ``"numpy"`` for a :class:`numpy.random.Generator`; ``"torch"`` for a CPU
            :class:`torch.Generator`.
        method: with ``generator``, the name of the method that is called as
            ``method(index, generator)``; ``"__getitem__"`` by default.

    Returns:
        A map-style dataset, with the length and attributes of ``dataset``.

    Raises:
        TypeError: ``dataset`` is iterable-style, or its method does not take two arguments.
        ValueError: ``generator`` has another value, or ``method`` is given without it.
        RuntimeError: when a sample is fetched and the epoch is not known.

    Example:
        >>> import fastseed
        >>> class Noise(list):
        ...     def draw(self, index, rng):
        ...         return int(rng.integers(100))
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> fastseed.reseed(1, 0)
        >>> noise = fastseed.data.per_sample(Noise(range(5)), "numpy", method="draw")
        >>> first = [noise[i] for i in range(5)]
        >>> [noise[i] for i in (4, 3)] == [first[4], first[3]]
        True
    """
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        rule = "a map-style dataset: samples of an iterable one have no index"
        raise validation.type_error(_FUNCTION, "dataset", rule, dataset)
    if generator is not None:
        validation.check_choice(_FUNCTION, "generator", generator, tuple(_MAKE))
    elif method is not None:
        raise validation.value_error(_FUNCTION, "method", "None without a generator", method)
    method = "__getitem__" if method is None else method
    if generator is not None:
        _check_method(dataset, method)
    return PerSample(dataset, generator, method)


def _check_method(dataset: Any, method: Any) -> None:
    function = getattr(dataset, method, None) if isinstance(method, str) else None
    rule = "the name of a method of dataset that takes (index, generator)"
    if not callable(function):
        raise validation.type_error(_FUNCTION, "method", rule, method)
    try:
        inspect.signature(function).bind(0, None)
    except ValueError:  # a built-in function without a signature
        return
    except TypeError as error:
        raise validation.type_error(_FUNCTION, "method", rule, method) from error
