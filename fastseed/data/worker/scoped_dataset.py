"""The dataset that torch reads for a loader of fastseed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..loaders.seekable import Seekable, Share
from .seeding import get_iteration_scope, get_worker
from .wrapper import DatasetWrapper, read_samples


class ScopedDataset(DatasetWrapper):
    """A dataset of any style. In a worker a new iteration first reseeds all generators.

    Args:
        dataset: the dataset of the loader.
        share: the samples of a ``Seekable`` that belong to this rank.
    """

    share: Share | None
    _was_iterated: bool

    def __init__(self, dataset: Any, share: Share | None = None) -> None:
        super().__init__(dataset, share=share, _was_iterated=False)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # torch and a user's worker_init_fn ask isinstance
        return type(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        _reseed_if_new()
        return read_samples(self.dataset.__getitem__, (index,))[0]

    def __getitems__(self, indices: Any) -> Any:
        _reseed_if_new()
        fetch = getattr(self.dataset, "__getitems__", None)
        if fetch is not None:
            return read_samples(fetch, (indices,))[0]
        return read_samples(self.dataset.__getitem__, indices)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker()
        # A worker that started late may have begun an abandoned iteration in the scope of the
        # next one, so from the second iteration on it is reseeded in any case.
        if worker is not None and self._was_iterated:
            worker.reseed()
        else:
            _reseed_if_new()
        self._was_iterated = True
        scope = get_iteration_scope()
        if isinstance(self.dataset, Seekable) and self.share is not None and scope is not None:
            return self.dataset.read_share(scope, self.share)
        return iter(self.dataset)


def _reseed_if_new() -> None:
    worker = get_worker()
    if worker is not None:
        worker.reseed_if_new()
