"""Datasets that are read in the scope of a loader's current iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from .._backend.compile import eager
from .iteration_scope import SharedScope, fetching_in
from .worker_seeding import get_worker
from .wrapper import DatasetWrapper, refused_stop_iteration

_END = object()


class ScopedDataset(DatasetWrapper, Dataset[Any]):
    """A map-style dataset; in a persistent worker a new iteration first reseeds all generators."""

    _scope: SharedScope

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # for isinstance in a user's worker_init_fn
        return type(self.dataset)

    @eager
    def __getitem__(self, index: Any) -> Any:
        return self._in_scope(self.dataset.__getitem__, index)

    @eager
    def __getitems__(self, indices: Any) -> Any:
        return self._in_scope(self._fetch_batch, indices)

    def _fetch_batch(self, indices: Any) -> Any:
        fetch = getattr(self.dataset, "__getitems__", None)
        return fetch(indices) if fetch else [self.dataset[index] for index in indices]

    def _in_scope(self, fetch: Callable[[Any], Any], request: Any) -> Any:
        worker = get_worker()
        with refused_stop_iteration("data.loader"):
            if worker is not None:
                worker.reseed_if_new()
                return fetch(request)
            with fetching_in(self._scope.read()):
                return fetch(request)


class ScopedIterable(DatasetWrapper, IterableDataset[Any]):
    """An iterable dataset; in a worker each iteration first reseeds all generators."""

    _scope: SharedScope
    _begun: bool

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # for isinstance in a user's worker_init_fn
        return type(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker()
        if worker is None:
            return self._in_scope()
        # A worker that started late may have begun an abandoned iteration in the scope of the
        # next one, so from the second iteration on it is reseeded in any case.
        if self._begun:
            worker.reseed()
        else:
            worker.reseed_if_new()
        self._begun = True
        return iter(self.dataset)

    def _in_scope(self) -> Iterator[Any]:
        scope = self._scope.read()
        with fetching_in(scope):
            samples = iter(self.dataset)
        while True:
            with fetching_in(scope):
                sample = next(samples, _END)
            if sample is _END:
                return
            yield sample


def in_scope(dataset: Any, scope: SharedScope) -> Any:
    """Wrap ``dataset`` so that it is read in the iteration that ``scope`` holds."""
    if isinstance(dataset, IterableDataset):
        return ScopedIterable(dataset, _scope=scope, _begun=False)
    return ScopedDataset(dataset, _scope=scope)
