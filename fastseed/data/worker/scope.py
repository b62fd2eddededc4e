"""The scope in which a loader is iterated, and what reads a dataset in it.

In the main process each thread has the scope of the iteration that it advances; a thread that a
dataset starts has none. A worker serves one loader, and all its threads have the scope that the
main process wrote last.
"""

from __future__ import annotations

import copy
import multiprocessing.context
import multiprocessing.reduction
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import torch

from ..._utils.log import warn_once
from ...derivation import context
from ...derivation.scopes import Scope
from ...generators.adapter import pack
from ...seeder.seeder import Seeder

T = TypeVar("T")


class IterationScope(NamedTuple):
    """The task and epoch of an iteration, and the global position of its first sample."""

    task: int
    epoch: int
    start: int
    number: int  # of the iteration among those of its loader; 0: there was none yet


DRAWS, REPEATS = 1, 2
_NOTES = (
    "",
    "fastseed.data.Loader: the dataset draws in workers, whose streams depend on where they begin: "
    "resumed in mid-epoch, its samples are others than in the whole epoch; wrap it, "
    "fastseed.data.per_sample(dataset)",
    "fastseed.data.Loader: workers 0 and 1 begin with the same sample, so each seems to read the "
    "whole dataset: divide it in its __iter__ by torch.utils.data.get_worker_info(), or give it "
    "seek(position), with which Loader divides it over workers and ranks",
)
"""What the main process logs, by the number that a worker has written."""


class ScopeInSharedMemory:
    """An ``IterationScope`` that workers of any start method read while they live."""

    def __init__(self, tensor: Any = None) -> None:
        if tensor is None:
            tensor = torch.zeros(7, dtype=torch.int64, device="cpu")
        if not tensor.is_shared():
            tensor.share_memory_()
        self._tensor = tensor
        self._words: memoryview[int] = memoryview(tensor.numpy())  # whose items are ints at once

    def write(self, scope: IterationScope) -> None:
        """Begin another iteration; in the main process only."""
        # The number is written last and read first: a reader that comes in between gets the number
        # of the iteration before, and reads again for its next sample.
        words = self._words
        words[1], words[2], words[3] = scope.task, scope.epoch, scope.start
        words[0] = scope.number

    def read(self) -> IterationScope:
        """Return what was written last; number 0 before the first write."""
        number, task, epoch, start, *_ = self._words
        return IterationScope(task, epoch, start, number)

    @property
    def number(self) -> int:
        return int(self._words[0])

    @property
    def notes(self) -> memoryview[int]:
        """What workers write: the number of a note, and the first samples of workers 0 and 1."""
        return self._words[4:]

    def warn(self) -> None:
        if note := self._words[4]:
            warn_once(_NOTES[note])

    def __reduce__(self) -> tuple[type[ScopeInSharedMemory], tuple[torch.Tensor]]:
        return ScopeInSharedMemory, (self._tensor,)


thread_scope: ContextVar[IterationScope | None] = ContextVar("thread_scope", default=None)
worker: Any = None  # the WorkerInit of a worker; its first thread sets it before it reads


class Fetched(NamedTuple):
    """What a dataset has just returned, which torch passes to ``collate_fn``."""

    where: tuple[Any, int, int, str | None]  # as of SampleStreams
    dataset: Any  # a weak reference; negative indices count from its end
    indices: Sequence[Any]  # of an iterable dataset the first position of the batch alone
    samples: object  # or the one sample
    is_of_loader: bool = False  # fastseed's, which calls collate_fn next


has_per_batch = False  # in this process: only then datasets note what they fetch
fetched: ContextVar[Fetched | None] = ContextVar("fetched", default=None)


def current_scope() -> IterationScope | None:
    """Return the scope in which a sample is being fetched; None outside of fastseed's loaders."""
    return (worker and worker.scope) or thread_scope.get()


def required_scope(function: str) -> IterationScope:
    """Return the scope in which a sample is being fetched; RuntimeError outside of a loader."""
    scope = current_scope()
    if scope is None:
        raise RuntimeError(f"fastseed.{function}: iterate it with fastseed.data.Loader")
    return scope


def epoch_scope(seeder: Seeder, function: str) -> Scope | None:
    """Return the scope of the job; None in that of ``init``, in which all epochs were the same."""
    if seeder.scope is None or (seeder.scope == (0, 0, 0) and not seeder.recent_scopes.used):
        return None
    return context.scope_of(seeder.place, function)


def wrapped(held: Any) -> Any:
    """Return the dataset inside wrappers; anything else itself."""
    while issubclass(type(held), DatasetWrapper):  # ScopedDataset has another __class__
        held = held.__dict__["_wrapped"]
    return held


class DatasetWrapper:
    """A dataset around another one, whose attributes it passes on, also those that are set.

    Paths of generators lead through it without a step of their own.
    """

    _wrapped: Any

    def __init__(self, dataset: object, **own: object) -> None:
        self.__dict__.update(own, _wrapped=dataset)

    def __copy__(self) -> DatasetWrapper:
        # Attributes are set on the dataset inside: those of a copy must not change the original's.
        copied: DatasetWrapper = object.__new__(type(self))
        copied.__dict__.update(self.__reduce__()[2], _wrapped=copy.copy(self._wrapped))
        return copied

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_wrapped" not in self.__dict__:  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self._wrapped, name, value)

    def __len__(self) -> int:
        return len(self._wrapped)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle's own way refuses an object whose __class__ is not its type.
        own = getattr(type(self), "__getstate__", None)
        return object.__new__, (type(self),), self.__dict__ if own is None else own(self)


def read_samples(read: Callable[[Any], T], indices: Iterable[object]) -> list[T]:
    """Return ``read(index)`` of each index; RuntimeError where it raises StopIteration."""
    indices = indices if isinstance(indices, (list, tuple)) else list(indices)
    samples = list(map(read, indices))  # which takes StopIteration for the end
    if len(samples) < len(indices):
        index = indices[len(samples)]
        raise RuntimeError(
            f"fastseed.data: the dataset must not raise StopIteration, got it for index {index!r}; "
            "torch would take it for the end of the epoch: raise IndexError or another error"
        )
    return samples


def is_spawning() -> bool:
    """Return True while objects are pickled to start a process."""
    return multiprocessing.context.get_spawning_popen() is not None


def _reduce_generator(generator: torch.Generator) -> tuple[Any, ...]:
    return _rebuild_generator, (str(generator.device), generator.get_state().numpy().tobytes())


def _rebuild_generator(device: str, state: bytes) -> torch.Generator:
    generator = torch.Generator(device)
    generator.set_state(pack(state))
    return generator


# torch (2.10 to 2.15) sends the state of a torch.Generator as a tensor in shared memory, which is
# gone before the spawned process opens it. So it is sent by its bytes, whoever starts the process.
multiprocessing.reduction.ForkingPickler.register(torch.Generator, _reduce_generator)
