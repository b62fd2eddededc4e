"""``fork(name)``: torch's default generators on a stream of their own for a while, and back.

A named stream has one generator on the CPU and one on each device: the streams
``<name>/torch.cpu``, ``<name>/torch.cuda`` and so on, at the rank field that the name has under
``varies``. Their indices are ``device`` for the continuing form and ``index + 1 << 8 | device`` for
the numbered ones, with the device's ordinal relative to the current one (0 on the CPU).

``torch.utils.checkpoint`` runs a function once more in the backward pass. A numbered fork draws the
same again by itself; for continuing ones there are :func:`fork_contexts` and :func:`recomputed`.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from . import _ops, streams, switching
from ._eager import eager
from .accelerators import AcceleratorSink
from .mesh import Places
from .registry import Registry
from .switching import CPU, Again, Forward, Frame, NamedStream, State

P = ParamSpec("P")
R = TypeVar("R")

MAX_INDEX = 2**32 - 2
"""Of a numbered fork: with 256 devices it fills the 40 bits of an index."""


def fork_contexts() -> tuple[contextlib.AbstractContextManager[None], ...]:
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
    forward, again = fork_contexts()
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

    def __init__(self, owner: Callable[[], Forking], name: str, index: Any, varies: Any) -> None:
        self._owner, self._varies = owner, varies
        self._name = streams.check_name("fork", name)
        self._number = (
            0 if index is None else streams.check_int("fork", "index", index, 0, MAX_INDEX) + 1
        )
        self._entered: list[tuple[Frame, list[AcceleratorSink]]] = []

    def _recreate_cm(self) -> Fork:
        index = None if self._number == 0 else self._number - 1
        return Fork(self._owner, self._name, index, self._varies)

    def __enter__(self) -> None:
        fork(self)

    def __exit__(self, *_: object) -> None:
        _back(self)


@eager
def fork(switch: Fork) -> None:
    """Enter it."""
    owner = switch._owner()
    frame = owner._enter_fork(switch._name, switch._number, switch._varies)
    switch._entered.append((frame, owner._accelerators))


@eager
def _back(switch: Fork) -> None:
    switching.leave(*switch._entered.pop())


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

    def fork(self, name: str, *, index: int | None = None, varies: Any = None) -> Fork:
        """Put torch's default generators, of the CPU and all devices, on a stream of their own.

            with fastseed.fork("tensor-parallel"):
                x = torch.nn.functional.dropout(x)

        However the block is left, they are then exactly as they were. Forks nest. Python's and
        NumPy's generators stay as they are.

        Args:
            name: the stream's name.
            index: [0, 2**32 - 2], the number of a layer say: the block always begins at the
                beginning of that numbered stream of this scope, so that a recomputation
                (``torch.utils.checkpoint``, of either kind) draws the same. None: it goes on where
                the last block of this name ended, from the beginning after each ``reseed``; for
                recomputation see :func:`fork_contexts` and :func:`recomputed`. Inside itself, it
                goes on as well.
            varies: the dimensions of the mesh along which the stream varies: all of them unless
                this, or ``varies`` of ``init``, says otherwise.

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
        return Fork(lambda: self, name, index, varies)

    def _enter_fork(self, name: str, number: int, varies: Any) -> Frame:
        at = self._at
        if self.scheme != "philox-v1":
            raise ValueError(f"fastseed.fork: scheme must be 'philox-v1', got {self.scheme!r}")
        if at is None:
            raise RuntimeError("fastseed.fork: call fastseed.reseed(task, epoch) first")
        workers = sys.modules.get("torch.utils.data._utils.worker")
        if workers is not None and workers._worker_info is not None:
            raise RuntimeError(
                "fastseed.fork: must not be entered in a DataLoader worker, where each would draw "
                "the same; its generators have streams of their own already"
            )
        for accelerator in self._accelerators:
            accelerator.refuse_capture("fork")
        stream = self._streams.get(name)
        if stream is None:
            stream = self._declare(name, varies)
        elif varies is not None and self._places.of_fork(name, varies) != stream.place:
            raise ValueError(
                f"fastseed.fork: varies must be what it was when {name!r} was first used, "
                f"got {streams.describe(varies)}"
            )
        place = stream.place
        return switching.enter(stream, number, lambda: _ops.scope_key(self._master_at(place), *at))

    def _declare(self, name: str, varies: Any) -> NamedStream:
        place = self._places.of_fork(name, varies)
        kinds = (CPU, *(a.name for a in self._accelerators))
        self._registry.reserve("fork", tuple(f"{name}/{kind}" for kind in kinds))
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
