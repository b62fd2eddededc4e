"""``fork(name)``: torch's default generators on a stream of their own for a while, and back.

A named stream has one generator on the CPU and one on each device: the streams
``<name>/torch.cpu``, ``<name>/torch.cuda`` and so on, at the rank field that the name has under
``distinct_over``. Their indices are ``device`` for the continuing form and ``index + 1 << 8 | device`` for
the numbered ones, with the device's ordinal relative to the current one (0 on the CPU).

``torch.utils.checkpoint`` runs a function once more in the backward pass. A numbered fork draws the
same again by itself; for continuing ones there are :func:`fork_rng_contexts` and :func:`recomputed`.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from .._backend import derive_ops
from .._backend.compile import eager
from .._utils import validation
from ..derivation import streams
from ..distributed.mesh import Places
from ..generators.accelerator import AcceleratorGenerators
from . import stream_stack
from .registry import Registry
from .stream_stack import CPU, Again, Forward, Frame, NamedStream, State

P = ParamSpec("P")
R = TypeVar("R")

MAX_INDEX = 2**32 - 2
"""Of a numbered fork: with 256 devices it fills the 40 bits of an index."""


def fork_rng_contexts() -> tuple[contextlib.AbstractContextManager[None], ...]:
    """``context_fn`` for ``torch.utils.checkpoint.checkpoint(..., use_reentrant=False)``.

    Continuing forks inside the function then draw the same when it is recomputed.
    """
    notes: dict[NamedStream, State] = {}
    return Forward(notes), Again(notes)


def recomputed(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` for one call of ``torch.utils.checkpoint.checkpoint``, reentrant or not.

        y = checkpoint(fastseed.recomputed(block), x, use_reentrant=True)

    Continuing forks inside of it then draw the same when it is recomputed. Make a new one for each
    call of ``checkpoint``: RuntimeError if it is called again outside of a backward pass.
    """
    forward, again = fork_rng_contexts()
    calls = 0

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal calls
        calls += 1
        if calls > 1 and torch._C._current_graph_task_id() == -1:
            raise RuntimeError(
                "fastseed.recomputed: must be called anew for each call of checkpoint: "
                "checkpoint(fastseed.recomputed(function), ...)"
            )
        with forward if calls == 1 else again:
            return function(*args, **kwargs)

    return call


# ---------------------------------------------------------------- what users see


class Fork(contextlib.ContextDecorator):
    """A switch to a named stream: ``with`` it, or decorate a function with it."""

    def __init__(self, owner: Callable[[], Any], name: str, index: Any, distinct_over: Any) -> None:
        self._owner, self._distinct_over = owner, distinct_over
        self._name = streams.check_name("fork_rng", name)
        self._number = (
            0
            if index is None
            else validation.check_int("fork_rng", "index", index, 0, MAX_INDEX) + 1
        )
        self._entered: list[tuple[Frame, list[AcceleratorGenerators]]] = []

    def _recreate_cm(self) -> Fork:
        index = None if self._number == 0 else self._number - 1
        return Fork(self._owner, self._name, index, self._distinct_over)

    def __enter__(self) -> None:
        fork(self)

    def __exit__(self, *_: object) -> None:
        _back(self)


@eager
def fork(switch: Fork) -> None:
    """Enter it."""
    forks: ForkRng = switch._owner().forks
    frame = forks.enter(switch._name, switch._number, switch._distinct_over)
    switch._entered.append((frame, forks.accelerators))


@eager
def _back(switch: Fork) -> None:
    stream_stack.leave(*switch._entered.pop())


class ForkRng:
    """The named streams of a seeder.

    Args:
        registry: where the names of streams are reserved.
        rank_fields: the rank field of each stream on this rank.
        accelerators: the default generators of the accelerators.
        scope_of: the current scope for a rank field; raises before the first ``reseed``.
    """

    def __init__(
        self,
        registry: Registry,
        rank_fields: Places,
        accelerators: list[AcceleratorGenerators],
        scope_of: Callable[[int], derive_ops.Scope],
    ) -> None:
        self._registry, self._places, self.accelerators = registry, rank_fields, accelerators
        self._scope_of = scope_of
        self.streams: dict[str, NamedStream] = {}
        self.resumed: dict[str, State] = {}

    def enter(self, name: str, number: int, distinct_over: Any) -> Frame:
        """Put torch's default generators on a stream."""
        self._scope_of(self._places.default)  # raises before the first reseed
        workers = sys.modules.get("torch.utils.data._utils.worker")
        if workers is not None and workers._worker_info is not None:
            raise RuntimeError(
                "fastseed.fork_rng: must not be entered in a DataLoader worker, where each would draw "
                "the same; its generators have streams of their own already"
            )
        for accelerator in self.accelerators:
            accelerator.refuse_capture("fork_rng")
        stream = self.streams.get(name)
        if stream is None:
            stream = self._declare(name, distinct_over)
        elif (
            distinct_over is not None and self._places.of_fork(name, distinct_over) != stream.place
        ):
            raise ValueError(
                f"fastseed.fork_rng: distinct_over must be what it was when {name!r} was first used, "
                f"got {validation.describe(distinct_over)}"
            )
        place = stream.place
        return stream_stack.enter(stream, number, lambda: self._scope_of(place))

    def _declare(self, name: str, distinct_over: Any) -> NamedStream:
        place = self._places.of_fork(name, distinct_over)
        kinds = (CPU, *(a.name for a in self.accelerators))
        self._registry.reserve("fork_rng", tuple(f"{name}/{kind}" for kind in kinds), place)
        stream = self.streams[name] = NamedStream(name, place, self.accelerators)
        held = self.resumed.pop(name, None)
        if held is not None and not (held.borrowed and place != streams.SHARED):
            stream.held = held
        return stream

    def restart(self) -> None:
        """After a reseed."""
        for stream in self.streams.values():
            stream.held = None
        self.resumed.clear()
