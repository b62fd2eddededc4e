"""Where an iteration is: what the main process writes and workers read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .._utils import validation
from ..derivation import streams

_TASK, _EPOCH, _START, _VERSION = range(4)


class Place(NamedTuple):
    """Where an iteration is."""

    task: int
    epoch: int
    start: int  # the global position of its first sample
    generation: int  # counts the writes: another one is another iteration


class ScopeCell:
    """A :class:`Place` in shared memory.

    The main process writes it when an iteration begins; workers that were forked from it, or got
    it in the pickle that started them, read the same memory, for as long as they live. A plain
    pickle, or a deep copy, is another cell, which holds the same.
    """

    __slots__ = ("_tensor", "_words")

    def __init__(self) -> None:
        self._hold(torch.zeros(4, dtype=torch.int64, device="cpu"))

    def _hold(self, tensor: Any) -> None:
        if not tensor.is_shared():
            tensor.share_memory_()
        self._tensor = tensor
        self._words: Any = memoryview(tensor.numpy())  # its items are ints, at 30 ns each

    def write(self, task: int, epoch: int, start: int = 0) -> None:
        """Begin another iteration, at the global position ``start``; main process only."""
        words = self._words
        version = words[_VERSION] | 1  # odd: it is being written (or was, when Ctrl-C came)
        words[_VERSION] = version
        words[_TASK], words[_EPOCH], words[_START] = task, epoch, start
        words[_VERSION] = version + 1

    def read(self) -> Place:
        """What was written last, whole; of generation 0 before the first write."""
        words = self._words
        while True:
            version = words[_VERSION]
            place = Place(words[_TASK], words[_EPOCH], words[_START], version // 2)
            if version % 2 == 0 and words[_VERSION] == version:
                return place

    @property
    def generation(self) -> int:
        """How often it was written."""
        return int(self._words[_VERSION]) // 2

    def __reduce__(self) -> tuple[Any, ...]:
        return _cell, (self._tensor,)

    def __repr__(self) -> str:
        return "ScopeCell(task={}, epoch={}, start={}, generation={})".format(*self.read())


class Fixed(NamedTuple):
    """Reads like a cell, and never changes."""

    place: Place

    def read(self) -> Place:
        """See :class:`ScopeCell`."""
        return self.place

    @property
    def generation(self) -> int:
        """See :class:`ScopeCell`."""
        return self.place.generation


def _cell(tensor: torch.Tensor) -> ScopeCell:
    cell = ScopeCell.__new__(ScopeCell)
    cell._hold(tensor)
    return cell


class _Here(threading.local):
    place: Place | None = None


_here = _Here()
_staying: Place | None = None


def here() -> Place | None:
    """Where the iteration is that is fetching a sample now; None outside of our loaders."""
    return _here.place or _staying


def stay(place: Place | None) -> None:
    """From now on, in all threads: for workers, which serve one iteration at a time."""
    global _staying
    _staying, _here.place = place, None


@contextlib.contextmanager
def at(place: Place) -> Iterator[None]:
    """While one sample or batch is fetched in the main process."""
    before, _here.place = _here.place, place
    try:
        yield
    finally:
        _here.place = before


class Wrapper:
    """What stands around a data set and shall not be seen: a path leads through it."""

    dataset: Any


def unwrap(dataset: Any) -> Any:
    """The data set that the user made."""
    while isinstance(dataset, Wrapper):
        dataset = dataset.dataset
    return dataset


def check_epoch(function: str, epoch: Any) -> int:
    """An epoch of [0, 2**32)."""
    return validation.check_int(function, "epoch", epoch, 0, streams.MAX_EPOCH)
