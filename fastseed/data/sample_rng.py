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
from .discovery import found_in
from .iteration_scope import IterationScope, SharedScope, keyed_seeder
from .occurrences import MAX_INDEX, Repeat
from .worker_seeding import (
    GENERATORS,
    WorkerSeeder,
    get_iteration_scope,
    get_worker,
    is_on_device,
    is_spawning,
)
from .wrapper import DatasetWrapper, read_samples

_FUNCTION = "data.per_sample"
_NAME = "sample"  # the stream of the form that leaves all generators alone


class _SampleStreams:
    """The streams of the samples of one (task, epoch), and the generators that get them.

    A sample is its global index and its occurrence; they are the ``index`` and ``worker`` of a
    stream of domain 3 on rank 0.
    """

    def __init__(self, seeder: WorkerSeeder, task: int, epoch: int) -> None:
        self.seeder, self.task, self.epoch = seeder, task, epoch
        self.scope = derive_ops.scope_key(seeder.master_seed, task, epoch, 0)
        self._others: list[Registration] = []  # than the three global generators
        self.is_settled = False

    def find_generators(self, dataset: Any) -> None:
        """Collect the generators that are registered and those that the dataset holds."""
        entries = self.seeder.entries
        own = (entry for entry in entries if not is_on_device(entry))
        self._others = [*own, *found_in(dataset, entries)]

    def reseed(self, index: int, occurrence: int) -> None:
        """Give every generator its stream of this sample."""
        GENERATORS.reseed_sample(self.scope, index, occurrence)
        for entry in self._others:
            name, adapter = entry.name, entry.adapter
            stream = streams.sample_stream(self.scope, name, index, occurrence)
            if adapter.is_bulk:  # the key is the scope of the members' keys
                key = stream.key()
                stream = streams.stream_in((key & LOW64, key >> 64), name, 0)
            try:
                adapter.reseed(stream)
            except Exception as error:
                raise reseed_error({name: error}) from error

    def hold(self) -> Callable[[], None]:
        """Return a function that restores the exact states that the generators have now."""
        restore_defaults = GENERATORS.hold()
        held = [(entry.adapter, entry.adapter.state()) for entry in self._others]

        def restore() -> None:
            restore_defaults()
            for adapter, state in held:
                if state is not None:
                    adapter.load_state(adapter.parse_state(state))

        return restore


def _torch_generator(key: int) -> torch.Generator:
    generator = torch.Generator("cpu")
    TorchGenerator(generator).seed(key)
    return generator


_MAKE: dict[str, Callable[[int], Any]] = {"numpy": np.random.default_rng, "torch": _torch_generator}


class PerSample(DatasetWrapper, Dataset[Any]):
    """A dataset whose samples have their own random numbers; ``per_sample`` makes it.

    Its length and its other attributes are those of the dataset.
    """

    generator: str | None
    _scope: SharedScope
    _seeder: WorkerSeeder | None  # from the pickle that started this process
    _streams: _SampleStreams | None

    def __init__(self, dataset: Any, generator: str | None) -> None:
        super().__init__(dataset, generator=generator)
        self.__dict__.update(_scope=SharedScope(), _seeder=None, _streams=None)

    def __repr__(self) -> str:
        kind = "" if self.generator is None else f", generator={self.generator!r}"
        return f"per_sample({self.dataset!r}{kind})"

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_streams": None, "_seeder": None}
        is_known = self._seeder is not None or context.seeder is not None
        if is_spawning() and is_known:
            state["_seeder"] = self._current_seeder()
        return state

    # -------------------------------------------------------------- the epoch

    def set_scope(self, task: int, epoch: int) -> None:
        """Set the task and epoch of the next samples, also in workers that are already running.

        Under fastseed's loaders it has no effect.

        Args:
            task: [0, 2**24).
            epoch: [0, 2**32).

        Raises:
            TypeError, ValueError: an argument has the wrong type or is out of range.
        """
        at = streams.check_coordinates("data.PerSample.set_scope", task, epoch, 0)
        self._scope.write(IterationScope(at.task, at.epoch, 0, self._scope.number + 1))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next samples; the task is that of the last ``reseed``, or 0.

        Call it before each iteration, in the main process, as for a ``DistributedSampler``.

        Args:
            epoch: [0, 2**32).

        Raises:
            TypeError, ValueError: ``epoch`` has the wrong type or is out of range.
        """
        scope = None if context.seeder is None else context.seeder.scope
        self.set_scope(0 if scope is None else scope.task, epoch)

    def _task_and_epoch(self) -> tuple[int, int]:
        at = get_iteration_scope()
        if at is None and self._scope.number:
            at = self._scope.read()
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
        worker = get_worker()
        if worker is not None:
            return worker.seeder
        if self._seeder is not None:
            return self._seeder
        return WorkerSeeder.from_seeder(keyed_seeder(_FUNCTION))

    def _current_streams(self) -> _SampleStreams:
        (task, epoch), seeder, held = self._task_and_epoch(), self._current_seeder(), self._streams
        if held is None or (held.seeder, held.task, held.epoch) != (seeder, task, epoch):
            held = self._streams = _SampleStreams(seeder, task, epoch)
            if self.generator is None:
                held.find_generators(self.dataset)
        return held

    # -------------------------------------------------------------- samples

    def __getitem__(self, index: Any) -> Any:
        return self._fetch((index,))[0]

    def __getitems__(self, indices: Any) -> list[Any]:
        """Return a batch, sample by sample; a ``__getitems__`` of the dataset is not used."""
        return self._fetch(indices)

    @eager
    def _fetch(self, indices: Any) -> list[Any]:
        current, dataset, number_of = self._current_streams(), self.dataset, self._sample
        if self.generator is not None:
            make = _MAKE[self.generator]

            def read_with_generator(index: Any) -> Any:
                stream = streams.sample_stream(current.scope, _NAME, *number_of(index))
                return dataset.__getitem__(index, make(stream.key()))

            return read_samples(read_with_generator, indices)

        def read(index: Any) -> Any:
            current.reseed(*number_of(index))
            sample = dataset[index]
            if not current.is_settled:  # the dataset may have made generators just now
                current.find_generators(dataset)
                current.is_settled = True
            return sample

        if get_worker_info() is not None:
            return read_samples(read, indices)
        restore = current.hold()
        try:
            return read_samples(read, indices)
        finally:
            restore()

    def _sample(self, index: Any) -> tuple[int, int]:
        """Return the global index and the occurrence of the sample ``index``."""
        if type(index) is int and 0 <= index <= MAX_INDEX:
            return index, 0
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


def per_sample(dataset: Any, generator: str | None = None) -> Any:
    """Wrap a dataset so that a sample's random numbers depend on its index, not on who fetches it.

    They are a function of master seed, task, epoch and index: the same for any number of workers
    and ranks, any batch size and prefetching, before and after resuming.

    Without ``generator``, the global generators of Python, NumPy and torch (CPU), registered
    generators and those that the dataset holds are set before each ``dataset[index]`` (one that the
    dataset makes when it is first used: from the second sample on). In the main process they are
    restored exactly afterwards, but for registered callables. With ``generator`` none of them is
    touched: ``dataset.__getitem__(index, generator)`` gets a new generator for each sample.

    Task and epoch are those of the iteration under fastseed's loaders. Elsewhere they are those of
    the last ``set_epoch(epoch)`` or ``set_scope(task, epoch)`` of the result, which persistent
    workers notice too; or else, without workers, those of the last ``reseed``.

    The index is the one that the result is called with: wrap a ``Subset`` or ``ConcatDataset``, not
    its parts, which all have an index 0. An index that comes twice in an epoch has the same random
    numbers twice, unless it is a ``Repeat``, as from ``ShuffleSampler`` where it fills up
    the ranks, and from ``count_occurrences``.

    Args:
        dataset: a map-style dataset, indexed by integers of [0, 2**64).
        generator: None; ``"numpy"`` for a ``numpy.random.Generator``; ``"torch"`` for a CPU
            ``torch.Generator``.

    Returns:
        A map-style dataset, with the length and attributes of ``dataset``.

    Raises:
        TypeError: ``dataset`` is iterable-style, or does not take a generator.
        ValueError: ``generator`` has another value.
        RuntimeError: when a sample is fetched and the epoch is not known.

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
    if generator is not None:
        validation.check_choice(_FUNCTION, "generator", generator, tuple(_MAKE))
        try:
            inspect.signature(dataset.__getitem__).bind(0, None)
        except (TypeError, ValueError) as error:
            rule = "one whose __getitem__ takes (index, generator)"
            raise validation.type_error(_FUNCTION, "dataset", rule, dataset) from error
    return PerSample(dataset, generator)
