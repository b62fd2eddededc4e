"""Random numbers of ``collate_fn`` that belong to a batch, whichever process makes it."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..._backend.compile import eager
from ..._utils import validation
from ...derivation import streams
from . import scope
from .streams import SampleStreams, read_in_streams, sample_of

_FUNCTION = "data.per_batch"
_NAME = "batch"  # the stream whose key is the scope of the batch
_TRIALS = 16  # a collator that mixes rows may leave some batches as they are

Place = tuple[int, int]  # the index and the occurrence of a sample


class PerBatch:
    """A ``collate_fn`` with the random numbers of its batches; ``per_batch`` makes it."""

    def __init__(self, collate: Callable[[Any], Any], rows: bool) -> None:
        scope.has_per_batch = True
        self._collate, self._rows = collate, rows
        self._held: Any = None, None  # the streams of one process and epoch
        self._is_by_row = False  # in a trial no row depended on another

    def __reduce__(self) -> tuple[object, ...]:
        return PerBatch, (self._collate, self._rows)

    @eager
    def __call__(self, samples: Any) -> Any:
        """Return the batch of the samples that the dataset has just returned."""
        batch = scope.fetched.get()
        scope.fetched.set(None)
        if batch is None or not (batch.is_of_loader or batch.samples is samples):
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: the samples of this batch are not known: use "
                "fastseed.data.Loader or steps, or wrap the dataset, per_sample(dataset), and give "
                "the loader per_batch(collate) itself; a batch is collated once"
            )
        count = len(batch.indices)
        if self._rows and not (isinstance(samples, list) and len(samples) == count):
            rule = f"a list of the {count} samples that the dataset returned, with rows=True"
            raise validation.value_error(_FUNCTION, "samples", rule, samples)
        parts = [[sample] for sample in samples] if self._rows else [samples]
        indices = batch.indices[: len(parts)]
        places = [sample_of(_FUNCTION, index, batch.dataset()) for index in indices]
        here = os.getpid(), batch.where
        if self._held[0] != here:
            owner = getattr(self._collate, "__self__", self._collate)  # of a bound method
            self._held = here, SampleStreams(batch.where, collate=owner)
        read = functools.partial(self._collate_parts, self._held[1], places, parts)
        return read_in_streams(_FUNCTION, self._held[1], read, restores=True)

    def _collate_parts(self, current: SampleStreams, places: list[Place], parts: Any) -> Any:
        if self._rows and len(parts) > 1 and not self._is_by_row:
            self._check_rows(current, places[0], [*parts[0], *parts[1]])
        made = [self._call(current, *each) for each in zip(places, parts, strict=True)]
        return _by_row(_join, *made) if self._rows else made[0]

    def _call(self, current: SampleStreams, place: Place, samples: Any, trial: int = 0) -> Any:
        batch = streams.sample_stream(current.scope, _NAME, *place)
        current.reseed(trial, 0, batch.scope())
        result = self._collate(samples)
        if not current.is_settled and (made := current.settle()):
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: collate must have its generators before it is called, but "
                f"its call made {', '.join(made)}: pass it no seed, or draw from the global ones"
            )
        return result

    def _check_rows(self, current: SampleStreams, place: Place, pair: list[Any]) -> None:
        """Raise ValueError unless two rows are the same together as one by one."""
        for trial in range(1, _TRIALS + 1):
            one, other, both, twice = (
                self._call(current, place, [copy.deepcopy(pair[i]) for i in chosen], trial)
                for chosen in ((0,), (1,), (0, 1), (0, 0))
            )
            _by_row(_compare, _by_row(_join, one, other), both, twice)
        self._is_by_row = True


def _by_row(function: Callable[..., Any], *batches: Any) -> Any:
    """Return the tree of what ``function`` returns for the leaves of trees of one form."""
    try:
        return _map(function, batches)
    except Exception as error:
        raise ValueError(
            f"fastseed.{_FUNCTION}: with rows=True, collate must make tensors or arrays of a row "
            f"for each sample, all of one shape, by that sample alone: leave rows out ({error})"
        ) from error


def _map(function: Callable[..., Any], trees: Sequence[Any]) -> Any:
    first = trees[0]
    if isinstance(first, Mapping):
        mapped: Any = copy.copy(first)
        for key in {key: None for tree in trees for key in tree}:
            mapped[key] = _map(function, [tree[key] for tree in trees])
        return mapped
    if isinstance(first, (list, tuple)):
        parts = [_map(function, part) for part in zip(*trees, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return function(*trees)


def _join(*rows: Any) -> Any:
    if any(len(row) != 1 for row in rows):
        raise ValueError(f"one sample has {len(rows[0])} rows")
    return torch.cat(rows) if isinstance(rows[0], torch.Tensor) else np.concatenate(rows)


def _compare(joined: Any, both: Any, twice: Any) -> None:
    """Raise ValueError if the first row of ``both`` depends on the second sample."""
    if (joined.shape, joined.dtype) != (both.shape, both.dtype):
        raise ValueError(f"two samples give {both.shape}, one by one {joined.shape}")
    first, same = torch.as_tensor(both[:1]), torch.as_tensor(twice[:1])
    if not torch.allclose(first, same, rtol=0, atol=0, equal_nan=True):
        raise ValueError("the first row depends on the second sample")


def per_batch(collate: Callable[[Any], Any], *, rows: bool = False) -> Callable[[Any], Any]:
    """Wrap a ``collate_fn`` so that what it draws depends on the batch, not on who makes it.

    Before each call all generators of the process and of ``collate`` are set by task, epoch and
    the index of the batch's first sample, and afterwards restored. The samples come from
    ``per_sample``, or through ``Loader`` or ``steps``, where those of an iterable dataset have
    their position.

    Args:
        collate: a function of a list of samples.
        rows: give each row the random numbers of its own sample, whatever the batch size and the
            ranks. ``collate`` gets the samples one by one; the first two of each process also
            together, to find out whether a row depends on others.

    Returns:
        The ``collate_fn`` of a loader.

    Raises:
        TypeError: an argument has the wrong type.
        RuntimeError: from the loader, if it is not known which samples a batch has, or
            ``collate`` makes generators when it is called.
        ValueError: from the loader, if ``collate`` cannot be applied row by row.

    Examples:
        >>> import fastseed, torch
        >>> from fastseed.data import Loader, per_batch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> fastseed.reseed(1, 0)
        >>> masks = per_batch(lambda samples: torch.rand(len(samples)) < 0.15)
        >>> a, b = (list(Loader(range(8), 4, num_workers=n, collate_fn=masks)) for n in (0, 2))
        >>> torch.equal(torch.cat(a), torch.cat(b))
        True
    """
    if not callable(collate):
        raise validation.type_error(_FUNCTION, "collate", "a function of samples", collate)
    return PerBatch(collate, validation.check_bool(_FUNCTION, "rows", rows))
