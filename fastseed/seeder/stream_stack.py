"""Torch's default generators on a named stream for a while, and back: what ``fork`` is made of.

A process has one pile of forks, whatever its threads: torch's default generators are the process's
too. Each fork on it holds what ran below it, so a stream that is entered again, while others are
piled on it, goes on from where it is held.

In a recomputation continuing streams are stood for by replicas, which begin where the streams were
when the forward pass first entered them; the streams themselves stay where they are.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TypeAlias

import torch

from .._backend import derive_ops, native
from ..derivation import streams
from ..derivation.streams import Stream
from ..generators.accelerator import AcceleratorGenerators
from ..generators.adapter import LOW64
from ..generators.torch_rng import TorchGenerator

logger = logging.getLogger("fastseed")

CPU = "torch.cpu"


def _copy(source: torch.Generator, target: torch.Generator) -> None:
    target.set_state(source.get_state())


_default = torch.default_generator
_spare: list[torch.Generator] = []  # a new one is seeded first, which costs more than a copy

Held: TypeAlias = "list[torch.Tensor] | Stream | None"
"""Of a type of device: the states by ordinal; before it is initialised, what it starts with."""


class State:
    """What torch's default generators hold, or will."""

    __slots__ = ("borrowed", "cpu", "devices")

    def __init__(self, cpu: torch.Generator, devices: list[Held], borrowed: bool = False) -> None:
        self.cpu, self.devices = cpu, devices
        self.borrowed = borrowed  # another rank's: for a stream that all share, and no other

    @classmethod
    def now(cls, accelerators: list[AcceleratorGenerators]) -> State:
        """A copy of it."""
        cpu = _spare.pop() if _spare else torch.Generator()
        _copy(_default, cpu)
        return cls(cpu, [_read(a) for a in accelerators])

    def copy(self) -> State:
        """Another of the same."""
        cpu = _spare.pop() if _spare else torch.Generator()
        _copy(self.cpu, cpu)
        return State(cpu, list(self.devices))

    def put(self, accelerators: list[AcceleratorGenerators]) -> None:
        """Make torch's default generators so."""
        _copy(self.cpu, _default)
        for accelerator, held in zip(accelerators, self.devices, strict=True):
            _write(accelerator, held)

    def free(self) -> None:
        """Nobody needs it any more."""
        _spare.append(self.cpu)


def _read(accelerator: AcceleratorGenerators) -> Held:
    if accelerator.ready():
        return [generator.get_state() for generator in accelerator.generators()]
    return accelerator._waiting


def _write(accelerator: AcceleratorGenerators, held: Held) -> None:
    if isinstance(held, list):
        for generator, state in zip(accelerator.generators(), held, strict=True):
            generator.set_state(state)
    elif held is not None:  # now, where it was initialised meanwhile; else when it is
        accelerator.reseed(held)
    elif not accelerator.ready():
        accelerator._waiting = None


class NamedStream:
    """A stream of ``fork``: where it goes on, in this scope."""

    def __init__(self, name: str, place: int, accelerators: list[AcceleratorGenerators]) -> None:
        self.name, self.place = name, place
        self.accelerators = accelerators
        self.held: State | None = None  # None: at its beginning
        self.warned = False

    def _on(self, device: str, scope: derive_ops.Scope, number: int = 0) -> Stream:
        """What a type of device starts with; a number lies above the device's in each index."""
        stream = streams.stream_in(scope, f"{self.name}/{device}", self.place)
        return stream.numbered(number << 8)

    def begin(self, scope: derive_ops.Scope, number: int) -> None:
        """Set torch's default generators to the beginning of the stream, or of a numbered one."""
        own = self._on(CPU, scope, number).key()
        if native.generators is None:
            TorchGenerator().seed(own)
        else:
            native.generators.reseed(_default, own & LOW64, own >> 64)
        for accelerator in self.accelerators:
            accelerator.reseed(self._on(accelerator.name, scope, number))

    def begin_missing(self, scope: Callable[[], derive_ops.Scope], state: State) -> None:
        """Devices that were not there where the state was saved."""
        for i, held in enumerate(state.devices):
            if held is None:
                accelerator = self.accelerators[i]
                accelerator.reseed(self._on(accelerator.name, scope()))

    def replica(self, held: State | None) -> NamedStream:
        """The same stream for a recomputation, which starts at ``held``."""
        other = NamedStream.__new__(NamedStream)
        other.__dict__.update(self.__dict__, held=held)
        return other


class Frame:
    """A fork that has been entered."""

    __slots__ = ("below", "pid", "stream")

    def __init__(self, stream: NamedStream | None, below: State) -> None:
        self.stream = stream  # None: a numbered one, which nothing goes on with
        self.below = below
        self.pid = os.getpid()


_frames: list[Frame] = []  # the latest last
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]


def refuse_inside(function: str) -> None:
    """RuntimeError inside a fork. A forked process is in none: it forgets those of its parent."""
    if not _frames:
        return
    if _frames[-1].pid != os.getpid():
        _frames.clear()
        return
    raise RuntimeError(
        f"fastseed.{function}: must not be called inside fork(...), which puts the generators back "
        "when it is left; call it before or after"
    )


def _outer(stream: NamedStream | None, before: int) -> int | None:
    """The latest frame below ``before`` that this stream runs in."""
    if stream is None or before == 0:
        return None
    return next((i for i in reversed(range(before)) if _frames[i].stream is stream), None)


def enter(stream: NamedStream, number: int, scope: Callable[[], derive_ops.Scope]) -> Frame:
    """Switch to a stream; ``number`` is 0 for where it goes on, else index + 1."""
    accelerators = stream.accelerators
    with _lock:
        original = stream
        if number == 0:
            stream = _running(original)
        below = State.now(accelerators)
        try:
            outer = None if number else _outer(stream, len(_frames))
            if outer is None:
                state = None if number else stream.held
            else:  # what the fork above it holds; or it runs right now
                state = _frames[outer + 1].below if outer + 1 < len(_frames) else below
            if state is None:
                stream.begin(scope(), number)
            elif state is not below:
                state.put(accelerators)
                stream.begin_missing(scope, state)
            if number == 0:
                _note(original)
        except BaseException:
            below.put(accelerators)
            raise
        frame = Frame(None if number else stream, below)
        _frames.append(frame)
        return frame


def leave(frame: Frame, accelerators: list[AcceleratorGenerators]) -> None:
    """Switch back, and keep where the stream got to."""
    with _lock:
        at = next((i for i in reversed(range(len(_frames))) if _frames[i] is frame), None)
        if at is None:  # a forked process has left all of its parent's
            return
        outer = _outer(frame.stream, at)
        if at + 1 < len(_frames):
            _leave_below(frame, at, outer)
        elif outer is None or outer + 1 < at:
            try:
                if frame.stream is not None:
                    _keep(frame.stream, outer, State.now(accelerators))
            finally:
                frame.below.put(accelerators)
                frame.below.free()
        # else the stream is inside itself, and just goes on
        _frames.remove(frame)


def _leave_below(frame: Frame, at: int, outer: int | None) -> None:
    """Where another thread, or a generator, entered in between: that one will put back."""
    above = _frames[at + 1]
    here, above.below = above.below, frame.below
    if frame.stream is not None and outer is not None and outer + 1 == at:
        above.below = here
    elif frame.stream is not None:
        _keep(frame.stream, outer, here)


def _keep(stream: NamedStream, outer: int | None, state: State) -> None:
    if outer is not None:
        _frames[outer + 1].below = state
        return
    if stream.held is not None:
        stream.held.free()
    stream.held = state


# ---------------------------------------------------------------- recomputation


class _Layer:
    """A context, entered any number of times, that forks look at while it lasts."""

    def __init__(self, notes: dict[NamedStream, State]) -> None:
        self.notes = notes

    def __enter__(self) -> None:
        _layers.append(self._made())

    def __exit__(self, *_: object) -> None:
        for i in reversed(range(len(_layers))):
            if isinstance(_layers[i], type(self)) and _layers[i].notes is self.notes:
                del _layers[i]
                return

    def _made(self) -> _Layer:
        return self


class Forward(_Layer):
    """Notes where each stream was when it was first entered."""


class Again(_Layer):
    """Has each stream begin where it was then, each time that this is entered."""

    def _made(self) -> _Layer:
        other = Again(self.notes)
        other.replicas = {}
        return other

    replicas: dict[NamedStream, NamedStream]


_layers: list[_Layer] = []  # the latest last


def _running(stream: NamedStream) -> NamedStream:
    """The stream, or what stands for it in a recomputation."""
    for layer in reversed(_layers):
        if isinstance(layer, Again):
            found = layer.replicas.get(stream)
            if found is None:
                start = layer.notes.get(stream) or stream.held
                found = layer.replicas[stream] = stream.replica(start and start.copy())
            return found
    if torch._C._current_graph_task_id() != -1 and not stream.warned:
        stream.warned = True
        logger.warning(
            "fastseed.fork_rng: %r was entered in a backward pass, where it goes on instead of "
            "repeating: recomputation by torch.utils.checkpoint draws other numbers than the "
            "forward pass did; give fork an index, or checkpoint context_fn=fastseed.fork_rng_contexts",
            stream.name,
        )
    return stream


def _note(stream: NamedStream) -> None:
    """For the recomputations that may follow."""
    for layer in reversed(_layers):
        if isinstance(layer, Again):
            return
        if stream not in layer.notes:
            layer.notes[stream] = State.now(stream.accelerators)
