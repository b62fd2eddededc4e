"""A recomputation takes what its own forward pass had: scope, rows and label.

What the uses in a checkpointed function had is kept with the function that torch holds for the
recomputation, and goes with it. The k-th use of a name in a recomputation takes what the k-th had.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from . import private_torch

T = TypeVar("T")
Around = Callable[[], contextlib.AbstractContextManager[object]]


class _Thread(threading.local):
    """What belongs to the thread that reads it."""

    def __init__(self) -> None:
        self.reading: dict[str, Iterator[Any]] | None = None  # of the innermost recomputation


_this_thread = _Thread()


class _Recomputed:
    """A checkpointed function, in its place for the recomputation."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.fastseed_original = function
        self.had: defaultdict[str, list[Any]] = defaultdict(list)
        self.around: Around = contextlib.nullcontext

    def __call__(self, *args: object, **kwargs: object) -> object:
        outer = _this_thread.reading
        _this_thread.reading = {name: iter(had) for name, had in self.had.items()}
        try:
            with self.around():
                return self.fastseed_original(*args, **kwargs)
        finally:
            _this_thread.reading = outer

    def __getattr__(self, name: str) -> Any:  # a function of another library may read a module's
        return getattr(vars(self)["fastseed_original"], name)


def _in_place_of(checkpoint: private_torch.Checkpoint) -> _Recomputed:
    """Return what stands in a checkpoint in place of the function that is called again."""
    function = getattr(*checkpoint)
    if not isinstance(function, _Recomputed):
        function = _Recomputed(function)
        setattr(*checkpoint, function)
    return function


_RECOMPUTATION = _Recomputed.__call__.__code__


def had(name: str) -> Any:
    """Return what this use of ``name`` had in the forward pass; None if this is none again."""
    reading = None if torch.compiler.is_compiling() else _this_thread.reading
    if reading is None:
        return None
    found = next(reading.get(name, iter(())), None)
    if found is None:
        raise RuntimeError(
            f"fastseed: a recomputation in a backward pass uses {name!r} more often than its "
            "forward pass did: a checkpointed function must do the same again"
        )
    return found


def keep(name: str, value: object) -> None:
    """Keep what a use of ``name`` has, for recomputations of the functions that run."""
    if not torch.compiler.is_compiling():
        for checkpoint in private_torch.running_checkpoints(_RECOMPUTATION):
            _in_place_of(checkpoint).had[name].append(value)


def used(name: str, now: T) -> T:
    """Return what counts for this use of ``name``: ``now``, or what its forward pass had."""
    if torch.compiler.is_compiling():
        return now
    value: T = now if _this_thread.reading is None else had(name)
    keep(name, value)
    return value


def innermost() -> private_torch.Checkpoint | None:
    """Return what stands for the checkpointed function whose forward pass runs, or None."""
    found = private_torch.running_checkpoints()
    return found[0] if found else None


def refuse(function: str, instead: str) -> None:
    """RuntimeError in a checkpointed function, and in its recomputation."""
    if private_torch.is_checkpointed() or _reads():
        raise RuntimeError(
            f"fastseed.{function}: must not be called in a checkpointed function, where the "
            f"recomputation would find another state: {instead}"
        )


@private_torch.answer_at_trace
def _reads() -> bool:
    return _this_thread.reading is not None


def wrap(around: Around, since: object) -> None:
    """Recompute ``around`` what runs in checkpoints that began since the code ``since`` did."""
    for checkpoint in private_torch.running_checkpoints(_RECOMPUTATION, since):
        _in_place_of(checkpoint).around = around
