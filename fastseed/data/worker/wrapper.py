"""Datasets around a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class DatasetWrapper:
    """A dataset around another one, whose attributes it passes on, also those that are set.

    Paths of generators lead through it without a step of their own.
    """

    dataset: Any

    def __init__(self, dataset: Any, **own: Any) -> None:
        self.__dict__.update(own, dataset=dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "dataset" not in self.__dict__:  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self.dataset, name, value)

    def __len__(self) -> int:
        return len(self.dataset)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle's own way refuses an object whose __class__ is not its type.
        own = getattr(type(self), "__getstate__", None)
        return _blank, (type(self),), self.__dict__ if own is None else own(self)


def _blank(kind: type[DatasetWrapper]) -> DatasetWrapper:
    return kind.__new__(kind)


def read_samples(read: Callable[[Any], Any], indices: Iterable[Any]) -> list[Any]:
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
