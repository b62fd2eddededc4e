"""The scope of a loader's iteration: the main process writes it, worker processes read it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .._utils import validation
from ..derivation import context
from ..seeder.seeder import Seeder


class IterationScope(NamedTuple):
    """The task and epoch of an iteration, and the global position of its first sample."""

    task: int
    epoch: int
    start: int
    generation: int  # how often the scope was written; 0: not yet


class SharedScope:
    """An :class:`IterationScope` in shared memory.

    The main process writes it when an iteration begins. Workers read the same memory for as long
    as they live, whatever their start method. A plain pickle or a deep copy has memory of its own.
    """

    __slots__ = ("_tensor", "_words")

    def __init__(self, tensor: Any = None) -> None:
        if tensor is None:
            tensor = torch.zeros(7, dtype=torch.int64, device="cpu")
        if not tensor.is_shared():
            tensor.share_memory_()
        self._tensor = tensor
        self._words: Any = memoryview(tensor.numpy())  # its items are ints, at 30 ns each

    def write(self, task: int, epoch: int, start: int = 0) -> None:
        """Begin another iteration; in the main process only."""
        # Two halves take turns, and the generation is written last: a reader that comes in
        # between reads the other half.
        words, generation = self._words, self._words[0] + 1
        half = 1 + 3 * (generation & 1)
        words[half], words[half + 1], words[half + 2] = task, epoch, start
        words[0] = generation

    def read(self) -> IterationScope:
        """Return what was written last; generation 0 before the first write."""
        words, generation = self._words, self._words[0]
        half = 1 + 3 * (generation & 1)
        return IterationScope(words[half], words[half + 1], words[half + 2], generation)

    @property
    def generation(self) -> int:
        """How often the scope was written."""
        return int(self._words[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedScope, (self._tensor,)


class _Thread(threading.local):
    scope: IterationScope | None = None


_thread = _Thread()
_worker_scope: IterationScope | None = None


def get_iteration_scope() -> IterationScope | None:
    """Return the scope in which a sample is being fetched; None outside of fastseed's loaders."""
    return _thread.scope or _worker_scope


def set_worker_scope(scope: IterationScope | None) -> None:
    """Set the scope of all threads of a worker, which serves one iteration at a time."""
    global _worker_scope
    _worker_scope, _thread.scope = scope, None


@contextlib.contextmanager
def fetching_in(scope: IterationScope) -> Iterator[None]:
    """Set the scope of this thread of the main process while it fetches a sample or a batch."""
    before, _thread.scope = _thread.scope, scope
    try:
        yield
    finally:
        _thread.scope = before


def keyed_seeder(function: str) -> Seeder:
    """Return the process-wide seeder; ValueError under scheme 'fwr13y', which has no keys."""
    seeder: Seeder = context.current(function)
    if seeder.scheme != "philox-v1":
        raise validation.value_error(function, "scheme", "'philox-v1'", seeder.scheme)
    return seeder
