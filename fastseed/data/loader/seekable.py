"""Iterable datasets that can be read from any position, by any number of ranks and workers.

torch hands batch ``j`` to worker ``j % num_workers``: each worker reads exactly the samples of its
own batches, so the result has the source's own order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from ..._utils import validation
from ...generators.setters import tell_epoch
from ..layout import StepLayout
from ..worker.scope import required_scope


class Seekable(IterableDataset[object]):
    """An iterable dataset with one global order, read from any position.

    Under ``fastseed.data.Loader`` with batches of ``b`` samples on ``w`` ranks, batch ``j`` of
    rank ``r`` has the positions ``j * b * w + r``, then every ``w``-th, ``b`` of them. Each rank
    reads the samples of all ranks one after another, and drops those of others: decode in
    ``collate_fn``. At the end a rank may have one sample or one batch less than another, which logs
    a warning, unless ``drop_last`` leaves that round out.

    Args:
        source: a function of a position that returns an iterable of the samples from there on; or
            an object with ``seek(position)``, whose next ``__iter__`` starts there. It must not
            divide itself among ranks or workers. If it has ``set_scope(task, epoch)`` or
            ``set_epoch(epoch)``, that is called before it is read.

    Raises:
        TypeError: ``source`` is of another kind.

    Examples:
        >>> from fastseed.data import Seekable
        >>> numbers = Seekable(lambda position: range(position, 6))
        >>> list(numbers)
        [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, source: Any) -> None:
        is_function = callable(source) and not isinstance(source, type)
        if not (can_seek(source) or is_function):
            rule = "a function of a position, or have seek(position)"
            raise validation.type_error("data.Seekable", "source", rule, source)
        self.source = source

    def __len__(self) -> int:
        """Return the number of samples; TypeError if the source does not know."""
        return len(self.source)

    def __iter__(self) -> Iterator[object]:
        if get_worker_info() is not None:
            raise RuntimeError(
                "fastseed.data.Seekable: a worker does not know which samples are its own; "
                "use fastseed.data.Loader instead of DataLoader"
            )
        return _samples_from(self.source, 0)

    def _read_share(self, layout: StepLayout, rank: int) -> Iterator[object]:
        """Return the samples of a rank and this worker, for a loader."""
        scope, source = required_scope("data.Seekable"), self.source
        tell_epoch(source, *scope[:2])
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        samples: Iterator[object] = iter(())
        position: int | None = None
        block = layout.step_size
        for first in itertools.count(scope.start + worker * block, workers * block):
            if position != first:
                samples = _samples_from(source, first)
            batch, count = [], 0
            for count, sample in enumerate(itertools.islice(samples, block), 1):
                if layout.place(count - 1)[0] == rank:
                    batch.append(sample)
            position = first + count
            if count == block or not layout.drop_last:
                yield from batch
            if count < block:
                return


def can_seek(source: Any) -> bool:
    return callable(getattr(source, "seek", None))


def _samples_from(source: Any, position: int) -> Iterator[object]:
    if can_seek(source):
        source.seek(position)
        return iter(source)
    return iter(source(position))
