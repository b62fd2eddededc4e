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
from ..generators.accelerator import AcceleratorSink
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

    def __init__(
        self, owner: Callable[[], Forking], name: str, index: Any, distinct_over: Any
    ) -> None:
        self._owner, self._distinct_over = owner, distinct_over
        self._name = streams.check_name("fork_rng", name)
        self._number = (
            0
            if index is None
            else validation.check_int("fork_rng", "index", index, 0, MAX_INDEX) + 1
        )
        self._entered: list[tuple[Frame, list[AcceleratorSink]]] = []

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
    owner = switch._owner()
    frame = owner._enter_fork(switch._name, switch._number, switch._distinct_over)
    switch._entered.append((frame, owner._accelerators))


@eager
def _back(switch: Fork) -> None:
    stream_stack.leave(*switch._entered.pop())


class Forking:
    """The named streams of a seeder."""

    scheme: str
    _at: tuple[int, int, int] | None
    _accelerators: list[AcceleratorSink]
    _registry: Registry
    _places: Places
    _streams: dict[str, NamedStream]
    _resumed: dict[str, State]

    def _master_at(self, place: int) -> int:
        raise NotImplementedError

    def fork_rng(self, name: str, *, index: int | None = None, distinct_over: Any = None) -> Fork:
        """Put torch's default generators, of the CPU and all devices, on a stream of their own.

            with fastseed.fork_rng("tensor-parallel"):
                x = torch.nn.functional.dropout(x)

        However the block is left, they are then exactly as they were. Forks nest. Python's and
        NumPy's generators stay as they are.

        Args:
            name: the stream's name.
            index: [0, 2**32 - 2], the number of a layer say: the block always begins at the
                beginning of that numbered stream of this scope, so that a recomputation
                (``torch.utils.checkpoint``, of either kind) draws the same. None: it goes on where
                the last block of this name ended, from the beginning after each ``reseed``; for
                recomputation see :func:`fork_rng_contexts` and :func:`recomputed`. Inside itself, it
                goes on as well.
            distinct_over: the dimensions of the mesh along which the stream distinct_over: all of them unless
                this, or ``distinct_over`` of ``init``, says otherwise.

        Returns:
            A context manager, and a decorator. It draws nothing and initialises no accelerator; one
            that is initialised inside is then on the stream too.

        torch's default generators are one for all threads, and so are forks: while one thread is
        in a block, others draw from its stream. Blocks of several threads that overlap are each
        put back, in whatever order they are left.

        Raises:
            TypeError, ValueError: an argument is none, the name is taken, the dimensions are
                not those of earlier calls, or the scheme is the predecessor's.
            RuntimeError: when the block is entered: before the first ``reseed``, while a CUDA graph
                is captured, or in a DataLoader worker. Inside of it: ``reseed``,
                ``load_state_dict`` and ``state_dict(rng=True)``.
        """
        return Fork(lambda: self, name, index, distinct_over)

    def _enter_fork(self, name: str, number: int, distinct_over: Any) -> Frame:
        at = self._at
        if self.scheme != "philox-v1":
            raise ValueError(f"fastseed.fork_rng: scheme must be 'philox-v1', got {self.scheme!r}")
        if at is None:
            raise RuntimeError("fastseed.fork_rng: call fastseed.reseed(task, epoch) first")
        workers = sys.modules.get("torch.utils.data._utils.worker")
        if workers is not None and workers._worker_info is not None:
            raise RuntimeError(
                "fastseed.fork_rng: must not be entered in a DataLoader worker, where each would draw "
                "the same; its generators have streams of their own already"
            )
        for accelerator in self._accelerators:
            accelerator.refuse_capture("fork_rng")
        stream = self._streams.get(name)
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
        return stream_stack.enter(
            stream, number, lambda: derive_ops.scope_key(self._master_at(place), *at)
        )

    def _declare(self, name: str, distinct_over: Any) -> NamedStream:
        place = self._places.of_fork(name, distinct_over)
        kinds = (CPU, *(a.name for a in self._accelerators))
        self._registry.reserve("fork_rng", tuple(f"{name}/{kind}" for kind in kinds))
        stream = self._streams[name] = NamedStream(name, place, self._accelerators)
        held = self._resumed.pop(name, None)
        if held is not None and not (held.borrowed and place != streams.SHARED):
            stream.held = held
        return stream

    def _begin_streams_anew(self) -> None:
        """After a reseed."""
        for stream in self._streams.values():
            stream.held = None
        self._resumed.clear()
