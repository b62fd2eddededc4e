"""Iterable data sets that can be entered anywhere, and are dealt to ranks and workers in one order.

torch hands batch ``j`` to worker ``j % num_workers`` and returns batches in that order. So a worker
that reads exactly the samples of *its* batches makes the whole come out in the source's own order,
whichever number of workers there is. That takes a source that can be entered at any position.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset, IterDataPipe, get_worker_info

from .._utils import validation
from .shared_scope import ScopeCell, Wrapper
from .workers import follow


class Seekable(IterableDataset[Any]):
    """One global order of samples, read from any position by any number of ranks and workers.

    Args:
        source: what holds the samples, in an order that is the same in every process. One of

            - a function of a position that returns an iterable of the samples from there on;
            - an object with ``seek(position)``, whose next ``__iter__`` begins there;
            - a sequence (``__len__`` and ``__getitem__``): what is not asked for is not read.

            Positions count samples from 0; past the last sample there is nothing. A source must not
            cut itself into shares by rank or worker: the loader deals them. If it has
            ``set_scope(task, epoch)`` or ``set_epoch(epoch)``, that is called before it is read.

    Under :func:`fastseed.data.loader` with batches of ``b`` samples on ``w`` ranks, batch ``j``
    of rank ``r`` has the positions ``j * b * w + r``, then every ``w``-th, ``b`` of them. A worker
    enters the source once for each of its batches and reads on through those ``b * w`` samples (of
    a sequence it reads its own alone). Nothing is repeated: at the end a rank may have a sample or
    a batch less than another; with ``drop_last`` the last ``b * w`` samples are left out unless
    they are complete, so that all ranks have as many batches.

    Iterated without a loader of ours, in the main process, it gives all samples from the position
    of the last :meth:`seek`.

    Raises:
        TypeError: ``source`` is none of these.
    """

    def __init__(self, source: Any) -> None:
        if not can_seek(source):
            raise TypeError(
                "fastseed.data.Seekable: source must be a function of a position, have "
                "seek(position) and __iter__, or be a sequence, "
                f"got {validation.describe(source)} of type {type(source).__name__}"
            )
        self.source = source
        self._start = 0

    def __len__(self) -> int:
        """How many samples there are; TypeError where the source does not know."""
        return len(self.source)

    def seek(self, position: int) -> None:
        """The next ``__iter__``, once, begins at this position of the global order."""
        self._start = validation.check_int("data.Seekable.seek", "position", position, 0, 2**63 - 1)

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise RuntimeError(
                "fastseed.data.Seekable: in a worker it is not known which samples are whose; "
                "use fastseed.data.loader or ResumableLoader instead of DataLoader"
            )
        start, self._start = self._start, 0
        return samples_from(self.source, start)


def can_seek(source: Any) -> bool:
    """Whether :class:`Seekable` can read it."""
    return _is_sequence(source) or callable(getattr(source, "seek", None)) or _is_function(source)


def length(source: Any) -> int | None:
    """How many samples there are, None where the source does not know."""
    try:
        return len(source)
    except TypeError:
        return None


def samples_from(source: Any, position: int) -> Iterator[Any]:
    """The samples from ``position`` on."""
    if _is_sequence(source):
        return (source[i] for i in range(position, len(source)))
    if callable(getattr(source, "seek", None)):
        source.seek(position)
        return iter(source)
    samples: Iterable[Any] = source(position)
    return iter(samples)


def _is_sequence(source: Any) -> bool:
    readable = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    return readable and not isinstance(source, (dict, set, IterableDataset))


def _is_function(source: Any) -> bool:
    return callable(source) and not isinstance(source, type)


class Dealt(Wrapper, IterableDataset[Any]):
    """The share of a :class:`Seekable` that the rank and worker reads in which it is iterated."""

    def __init__(
        self,
        dataset: Seekable,
        cell: ScopeCell,
        *,
        batch: int,
        rank: int,
        world_size: int,
        drop_last: bool,
    ) -> None:
        self.dataset, self.cell = dataset, cell
        self.batch, self.rank, self.world_size = batch, rank, world_size
        self.drop_last = drop_last

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataset":  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __iter__(self) -> Iterator[Any]:
        place, source = self.cell.read(), self.dataset.source
        if hasattr(source, "set_scope"):
            source.set_scope(place.task, place.epoch)
        elif hasattr(source, "set_epoch"):
            source.set_epoch(place.epoch)
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return self._mine(place.start, worker, workers)

    def _mine(self, start: int, worker: int, workers: int) -> Iterator[Any]:
        """The samples of this rank in batch ``worker`` and every ``workers``-th from there."""
        block = self.batch * self.world_size
        firsts = itertools.count(start + worker * block, workers * block)
        read = self._picked if _is_sequence(self.dataset.source) else self._read()
        for first in firsts:
            own, complete = read(first, block)
            if complete or not self.drop_last:
                yield from own
            if not complete:
                return

    def _picked(self, first: int, block: int) -> tuple[Iterable[Any], bool]:
        source = self.dataset.source
        n = len(source)
        chosen = range(first + self.rank, min(first + block, n), self.world_size)
        return (source[i] for i in chosen), first + block <= n

    def _read(self) -> Callable[[int, int], tuple[Iterable[Any], bool]]:
        """As :meth:`_picked`, of what has to be read through; entered where there is a gap."""
        samples: Iterator[Any] = iter(())
        here: int | None = None

        def read(first: int, block: int) -> tuple[Iterable[Any], bool]:
            nonlocal samples, here
            if here != first:
                samples = samples_from(self.dataset.source, first)
            own, seen = [], 0
            for sample in itertools.islice(samples, block):
                if seen % self.world_size == self.rank:
                    own.append(sample)
                seen += 1
            here = first + seen
            return own, seen == block

        return read


class FollowingPipe(IterDataPipe[Any]):
    """As :func:`follow`: torch has to see a DataPipe, and its source, to seed and cut it."""

    def __init__(self, source: Any, cell: ScopeCell) -> None:
        self.source, self.cell = source, cell

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Any]:
        yield from follow(self.source, self.cell)
