"""Random numbers of ``collate_fn`` that belong to a batch, whichever process makes it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ..._backend.compile import eager
from ..._utils import validation
from ...derivation import blocks, streams
from . import scope
from .streams import SampleStreams, read_in_streams, sample_of

_FUNCTION = "data.per_batch"
_NAME = "batch"  # the stream whose key is the scope of the batch


class PerBatch:
    """A ``collate_fn`` with the random numbers of its batches; ``per_batch`` makes it."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        scope.has_per_batch = True
        self._collate = collate
        self._held: Any = None, None  # the streams of one process and epoch

    def __reduce__(self) -> tuple[object, ...]:
        return PerBatch, (self._collate,)

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
        if not len(batch.indices):
            rule = "a batch must have a sample, whose place its random numbers have"
            raise ValueError(f"fastseed.{_FUNCTION}: {rule}, got none: leave out empty batches")
        place = sample_of(_FUNCTION, batch.indices[0], batch.dataset())
        here = os.getpid(), batch.where
        if self._held[0] != here:
            owner = getattr(self._collate, "__self__", self._collate)  # of a bound method
            self._held = here, SampleStreams(batch.where, collate=owner)
        read = functools.partial(self._call, self._held[1], place, samples)
        with blocks.around_samples():
            return read_in_streams(_FUNCTION, self._held[1], read, restores=True)

    def _call(self, current: SampleStreams, place: tuple[int, int], samples: Any) -> Any:
        batch = streams.sample_stream(current.scope, _NAME, *place)
        current.reseed(0, 0, batch.scope())
        result = self._collate(samples)
        if not current.is_settled and (made := current.settle()):
            raise RuntimeError(
                f"fastseed.{_FUNCTION}: collate must have its generators before it is called, but "
                f"its call made {', '.join(made)}: pass it no seed, or draw from the global ones"
            )
        return result


def per_batch(collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a ``collate_fn`` so that what it draws depends on the batch, not on who makes it.

    Before each call all generators of the process and of ``collate`` are set by task, epoch and
    the index of the batch's first sample, and afterwards restored. The samples come from
    ``per_sample``, or through ``Loader`` or ``steps``, where those of an iterable dataset have
    their position.

    Args:
        collate: a function of a list of samples. Numbers that each row is to have whatever the
            batch size and the ranks belong into the ``transform`` of ``per_sample``.

    Returns:
        The ``collate_fn`` of a loader.

    Raises:
        TypeError: ``collate`` cannot be called.
        RuntimeError: from the loader, if it is not known which samples a batch has, or
            ``collate`` makes generators when it is called.

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
    return PerBatch(collate)
