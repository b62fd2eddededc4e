"""Iterable datasets that can be read from any position, by any number of ranks and workers.

torch hands batch ``j`` to worker ``j % num_workers`` and returns batches in that order. If each
worker reads exactly the samples of its own batches, the result has the source's own order for any
number of workers. That takes a source that can be read from any position.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from .._utils import validation
from .iteration_scope import SharedScope
from .wrapper import DatasetWrapper

MAX_POSITION = 2**63 - 1


class Seekable(IterableDataset[Any]):
    """An iterable dataset with one global order, read from any position.

    Under :func:`fastseed.data.loader` with batches of ``b`` samples on ``w`` ranks, batch ``j`` of
    rank ``r`` has the positions ``j * b * w + r``, then every ``w``-th, ``b`` of them. A worker
    seeks once for each of its batches and reads those ``b * w`` samples (of a sequence, only its
    own). No sample is repeated: at the end a rank may have one sample or one batch less than
    another. With ``drop_last`` the last ``b * w`` samples are left out unless they are complete, so
    that all ranks have the same number of batches.

    Iterated in the main process without a loader, it yields all samples from the position of the
    last :meth:`seek`.

    Args:
        source: the samples, in an order that is the same in every process. Either a function of a
            position that returns an iterable of the samples from there on; or an object with
            ``seek(position)``, whose next ``__iter__`` starts there; or a sequence with ``__len__``
            and ``__getitem__``. Positions count samples from 0; past the last sample there is
            nothing. A source must not divide itself among ranks or workers. If it has
            ``set_scope(task, epoch)`` or ``set_epoch(epoch)``, that is called before it is read.

    Raises:
        TypeError: ``source`` is of another kind.

    Example:
        >>> from fastseed.data import Seekable
        >>> numbers = Seekable(lambda position: range(position, 6))
        >>> numbers.seek(4)
        >>> list(numbers)
        [4, 5]
    """

    def __init__(self, source: Any) -> None:
        is_function = callable(source) and not isinstance(source, type)
        if not (_is_sequence(source) or can_seek(source) or is_function):
            rule = "a function of a position, have seek(position), or be a sequence"
            raise validation.type_error("data.Seekable", "source", rule, source)
        self.source = source
        self._start = 0

    def __len__(self) -> int:
        """Return the number of samples; TypeError if the source does not know."""
        return len(self.source)

    def seek(self, position: int) -> None:
        """Start the next iteration, and only that one, at a position of the global order.

        Args:
            position: [0, 2**63).

        Raises:
            TypeError, ValueError: ``position`` has the wrong type or is out of range.

        Example:
            >>> from fastseed.data import Seekable
            >>> letters = Seekable("abcd")
            >>> letters.seek(2)
            >>> list(letters), list(letters)
            (['c', 'd'], ['a', 'b', 'c', 'd'])
        """
        self._start = validation.check_int(
            "data.Seekable.seek", "position", position, 0, MAX_POSITION
        )

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise RuntimeError(
                "fastseed.data.Seekable: a worker does not know which samples are its own; "
                "use fastseed.data.loader or ResumableLoader instead of DataLoader"
            )
        start, self._start = self._start, 0
        return _samples_from(self.source, start)


def can_seek(source: Any) -> bool:
    """Return True if ``source`` has a method ``seek``."""
    return callable(getattr(source, "seek", None))


def _is_sequence(source: Any) -> bool:
    readable = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    return readable and not isinstance(source, (dict, set, IterableDataset))


def _samples_from(source: Any, position: int) -> Iterator[Any]:
    if _is_sequence(source):
        return (source[i] for i in range(position, len(source)))
    if can_seek(source):
        source.seek(position)
        return iter(source)
    return iter(source(position))


class ShardedSeekable(DatasetWrapper, IterableDataset[Any]):
    """The samples of a :class:`Seekable` that belong to this rank and worker."""

    _scope: SharedScope
    _batch: int
    _rank: int
    _world_size: int
    _drop_last: bool

    def __iter__(self) -> Iterator[Any]:
        scope, source = self._scope.read(), self.dataset.source
        if hasattr(source, "set_scope"):
            source.set_scope(scope.task, scope.epoch)
        elif hasattr(source, "set_epoch"):
            source.set_epoch(scope.epoch)
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return self._own_samples(scope.start, worker, workers)

    def _own_samples(self, start: int, worker: int, workers: int) -> Iterator[Any]:
        """Yield this rank's samples of batch ``worker`` and every ``workers``-th from there."""
        block = self._batch * self._world_size
        read = self._pick if _is_sequence(self.dataset.source) else self._reader()
        for first in itertools.count(start + worker * block, workers * block):
            own, is_complete = read(first, block)
            if is_complete or not self._drop_last:
                yield from own
            if not is_complete:
                return

    def _pick(self, first: int, block: int) -> tuple[Iterable[Any], bool]:
        source = self.dataset.source
        n = len(source)
        chosen = range(first + self._rank, min(first + block, n), self._world_size)
        return (source[i] for i in chosen), first + block <= n

    def _reader(self) -> Callable[[int, int], tuple[Iterable[Any], bool]]:
        """Return what does the same as :meth:`_pick` for a source without ``__getitem__``."""
        samples: Iterator[Any] = iter(())
        position: int | None = None

        def read(first: int, block: int) -> tuple[Iterable[Any], bool]:
            nonlocal samples, position
            if position != first:
                samples = _samples_from(self.dataset.source, first)
            own, count = [], 0
            for sample in itertools.islice(samples, block):
                if count % self._world_size == self._rank:
                    own.append(sample)
                count += 1
            position = first + count
            return own, count == block

        return read
