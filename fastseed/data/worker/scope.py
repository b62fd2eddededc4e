"""The scope in which a loader is iterated, and the datasets that are read in it.

Who fetches a sample asks ``current_scope``. In the main process each thread has the scope of the
iteration that it advances; a thread that a dataset starts has none. A worker serves one loader, and
all its threads have the scope that the main process wrote last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from ...derivation.coordinates import Coordinates, require_keys
from ...seeder.seeder import Seeder, current_seeder

if TYPE_CHECKING:
    from .seeding import WorkerInit

T = TypeVar("T")


class IterationScope(NamedTuple):
    """The task and epoch of an iteration, and the global position of its first sample."""

    task: int
    epoch: int
    start: int
    number: int  # of the iteration among those of its loader; 0: there was none yet


class SharedScope:
    """An ``IterationScope`` in shared memory.

    The main process writes it when an iteration begins. Workers read the same memory for as long
    as they live, whatever their start method. A plain pickle or a deep copy has memory of its own.
    """

    __slots__ = ("_tensor", "_words")

    def __init__(self, tensor: Any = None) -> None:
        if tensor is None:
            tensor = torch.zeros(4, dtype=torch.int64, device="cpu")
        if not tensor.is_shared():
            tensor.share_memory_()
        self._tensor = tensor
        self._words: memoryview[int] = memoryview(
            tensor.numpy()
        )  # its items are ints, at 30 ns each

    def write(self, scope: IterationScope) -> None:
        """Begin another iteration; in the main process only."""
        # The number is written last and read first: a reader that comes in between gets the number
        # of the iteration before, and reads again for its next sample.
        words = self._words
        words[1], words[2], words[3] = scope.task, scope.epoch, scope.start
        words[0] = scope.number

    def read(self) -> IterationScope:
        """Return what was written last; number 0 before the first write."""
        number, task, epoch, start = self._words
        return IterationScope(task, epoch, start, number)

    @property
    def number(self) -> int:
        """The number of the iteration."""
        return int(self._words[0])

    def __reduce__(self) -> tuple[type[SharedScope], tuple[torch.Tensor]]:
        return SharedScope, (self._tensor,)


# ------------------------------------------------------------------ who asks for it

thread_scope: ContextVar[IterationScope | None] = ContextVar("thread_scope", default=None)
_worker: WorkerInit | None = None  # set once, by the first thread of a worker, before it reads


def current_scope() -> IterationScope | None:
    """Return the scope in which a sample is being fetched; None outside of fastseed's loaders."""
    return thread_scope.get() if _worker is None else _worker.scope


def current_worker() -> WorkerInit | None:
    """Return what seeds this process if it is a worker; None in the main process."""
    return _worker


def enter_worker(worker: WorkerInit) -> None:
    """Make this process a worker, unless it is one; its children of ``os.fork`` are as well."""
    global _worker
    _worker = _worker or worker


def epoch_scope(seeder: Seeder) -> Coordinates | None:
    """Return the scope of the job; None in that of ``init``, in which all epochs were the same."""
    scope = seeder.scope
    return None if scope == (0, 0, 0) and not seeder.recent_scopes.used else scope


def keyed_seeder(function: str) -> Seeder:
    """Return the process-wide seeder; ValueError under scheme 'fwr13y', which has no keys."""
    seeder = current_seeder(function)
    require_keys(function, seeder.scheme)
    return seeder


# ------------------------------------------------------------------ datasets


class DatasetWrapper:
    """A dataset around another one, whose attributes it passes on, also those that are set.

    Paths of generators lead through it without a step of their own.
    """

    dataset: Any

    def __init__(self, dataset: object, **own: object) -> None:
        self.__dict__.update(own, dataset=dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "dataset" not in self.__dict__:  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self.dataset, name, value)

    def __len__(self) -> int:
        return len(self.dataset)

    def __reduce__(self) -> tuple[object, ...]:
        # Pickle's own way refuses an object whose __class__ is not its type.
        own = getattr(type(self), "__getstate__", None)
        return _blank, (type(self),), self.__dict__ if own is None else own(self)


def _blank(kind: type[DatasetWrapper]) -> DatasetWrapper:
    return kind.__new__(kind)


class ScopedDataset(DatasetWrapper):
    """The dataset, of any style, that torch reads for a loader of fastseed.

    In a worker a new iteration first reseeds all generators.

    Args:
        dataset: the dataset of the loader.
        share: the samples of a ``Seekable`` that belong to this rank.
    """

    share: object
    _was_iterated: bool

    def __init__(self, dataset: object, share: object = None) -> None:
        super().__init__(dataset, share=share, _was_iterated=False)

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:  # torch and a user's worker_init_fn ask isinstance
        return type(self.dataset)

    def __getitem__(self, index: object) -> object:
        _reseed_if_new()
        return read_samples(self.dataset.__getitem__, (index,))[0]

    def __getitems__(self, indices: Iterable[object]) -> object:
        _reseed_if_new()
        fetch = getattr(self.dataset, "__getitems__", None)
        if fetch is not None:
            return read_samples(fetch, (indices,))[0]
        return read_samples(self.dataset.__getitem__, indices)

    def __iter__(self) -> Iterator[object]:
        worker = current_worker()
        # A worker that started late may have begun an abandoned iteration in the scope of the
        # next one, so from the second iteration on it is reseeded in any case.
        if worker is not None and self._was_iterated:
            worker.reseed()
        else:
            _reseed_if_new()
        self._was_iterated = True
        if self.share is not None:
            return iter(self.dataset.read_share(self.share))
        return iter(self.dataset)


def _reseed_if_new() -> None:
    if _worker is not None:
        _worker.reseed_if_new()


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


def call_and_leave(call: Callable[[], T], leave: Callable[[], object]) -> T:
    """Return ``call()``; ``leave()`` follows in any case, again after an interrupt inside it."""
    try:
        return call()
    finally:
        try:
            leave()
        except BaseException:
            leave()
            raise
