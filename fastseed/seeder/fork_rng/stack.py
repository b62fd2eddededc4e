"""The stack of ``fork_rng`` blocks that this process is in, and their recomputation.

torch's default generators belong to the process, so its blocks form one stack. The innermost block
runs; every other stream on the stack, and what runs outside of all blocks, holds its own snapshot.

Threads: ``stack.lock`` is held while torch's default generators are set, also by ``reseed``. A
block of one thread must not be entered while another thread is inside one. ``os.fork``: a child
begins outside of all blocks, with a lock of its own.

Interrupts (``KeyboardInterrupt``): entering and leaving change nothing, or all, since they end with
assignments, between which the interpreter runs no signal handler. What was interrupted is undone,
or completed, before the exception leaves the block.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ...generators.accelerator import AcceleratorGenerators

logger = logging.getLogger("fastseed")


class GeneratorState(NamedTuple):
    """A snapshot of torch's default generators."""

    cpu: torch.Tensor
    devices: Sequence[Any]  # for each accelerator what AcceleratorGenerators.snapshot returned

    @classmethod
    def capture(cls, accelerators: Sequence[AcceleratorGenerators]) -> GeneratorState:
        """Return the present state."""
        return cls(torch.default_generator.get_state(), [a.snapshot() for a in accelerators])

    def restore(self, accelerators: Sequence[AcceleratorGenerators]) -> None:
        """Put this state back into torch's default generators."""
        torch.default_generator.set_state(self.cpu)
        for accelerator, held in zip(accelerators, self.devices, strict=True):
            accelerator.restore(held)


class NamedStream:
    """A stream of ``fork_rng``, and where it continues."""

    def __init__(self, name: str, rank_field: int, continues: bool = True) -> None:
        self.name, self.rank_field = name, rank_field
        self.continues = continues  # False: a numbered one
        self.state: GeneratorState | None = None  # None: at its beginning
        self.warned = False


_NONE = NamedStream("", 0)


class Block:
    """One entry of a block. ``ForkStack.enter`` fills it."""

    def __init__(self) -> None:
        self.stream: NamedStream = _NONE
        self.accelerators: Sequence[AcceleratorGenerators] = ()
        self.thread = 0
        self.end: GeneratorState | None = None  # where its stream was when it began to be left


class Recording:
    """The positions of continuing streams in a forward pass, for its recomputation."""

    def __init__(self) -> None:
        self.positions: dict[NamedStream, GeneratorState | None] = {}
        self.around = NamedStream("", 0)  # what runs around the forward pass


class _Frame:
    """The blocks of the process, or of one recomputation, which has a stack of its own."""

    def __init__(self, outside: NamedStream, recomputing: bool = False) -> None:
        self.outside, self.recomputing = outside, recomputing
        self.blocks: list[Block] = []
        self.recordings: list[Recording] = []

    @property
    def running(self) -> NamedStream:
        return self.blocks[-1].stream if self.blocks else self.outside


class ForkStack:
    """The blocks in the order in which they were entered."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all blocks and restore nothing, as a forked child does."""
        # The garbage collector may close a generator that is inside a block: the same thread again.
        self.lock = threading.RLock()
        self.frame = _Frame(NamedStream("", 0))

    def refuse_inside(self, function: str) -> None:
        """Raise RuntimeError inside a block."""
        if self.frame.blocks:
            raise RuntimeError(
                f"fastseed.{function}: must not be called inside a fork_rng block, which restores "
                "the generators when it is left; call it before or after the block"
            )

    def enter(
        self,
        block: Block,
        stream: NamedStream,
        accelerators: Sequence[AcceleratorGenerators],
        begin: Callable[[], None],
    ) -> None:
        """Switch to ``stream``; ``begin`` sets the generators to its beginning."""
        with self.lock:
            frame = self.frame
            _check_thread(frame)
            block.stream, block.accelerators = stream, accelerators
            block.thread = threading.get_ident()
            running, before = frame.running, GeneratorState.capture(accelerators)
            position = before if stream is running else stream.state
            try:
                if position is None:
                    begin()
                else:
                    position.restore(accelerators)
                if stream.continues:
                    _record(frame, stream, position)
            except BaseException:
                before.restore(accelerators)
                raise
            running.state = before
            frame.blocks = [*frame.blocks, block]

    def leave(self, block: Block, *, in_order: bool = False) -> None:
        """Switch back to what ran before the block, also where blocks inside it were not left.

        After an interrupt another call completes it. RuntimeError under ``in_order`` if blocks
        inside it were not left.
        """
        with self.lock:
            frame = self.frame
            if block not in frame.blocks:  # left already by an outer block, or os.fork was called
                return
            at = frame.blocks.index(block)
            inside = [inner.stream.name for inner in frame.blocks[at + 1 :]]
            running, outer = frame.running, frame.blocks[at - 1].stream if at else frame.outside
            if block.end is None:
                block.end = GeneratorState.capture(block.accelerators)
            state = block.end if outer is running else outer.state
            assert state is not None
            state.restore(block.accelerators)
            running.state = block.end
            frame.blocks = frame.blocks[:at]
        if inside and in_order:
            raise RuntimeError(
                "fastseed.fork_rng: blocks must be left in the reverse order of entering, but "
                f"{block.stream.name!r} was left before {inside}; the generators are now as they "
                "were before it. Do not suspend a generator or coroutine inside a block"
            )

    @contextlib.contextmanager
    def record(self, recording: Recording) -> Iterator[None]:
        """Note where each continuing stream is when it is first entered."""
        frame = self.frame
        recording.around = frame.running
        try:
            frame.recordings.append(recording)
            yield
        finally:
            if recording in frame.recordings:
                frame.recordings.remove(recording)

    @contextlib.contextmanager
    def recompute(self, recording: Recording) -> Iterator[None]:
        """Let streams continue from recorded positions; other threads wait until this ends."""
        with self.lock:
            frame, around = self.frame, recording.around
            held = [(stream, stream.state) for stream in (around, *recording.positions)]
            try:
                for stream, position in recording.positions.items():
                    stream.state = position
                self.frame = _Frame(around, recomputing=True)
                yield
            finally:
                self.frame = frame
                try:
                    _put_back(held)
                except BaseException:  # an interrupt
                    _put_back(held)
                    raise


def _put_back(held: list[tuple[NamedStream, GeneratorState | None]]) -> None:
    for stream, state in held:
        stream.state = state


class Recomputation:
    """The context of a recomputation; a second backward pass enters it again."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._entered: tuple[contextlib.AbstractContextManager[None], ...] = ()

    def __enter__(self) -> None:
        entered = stack.recompute(self._recording)
        entered.__enter__()
        self._entered = (*self._entered, entered)

    def __exit__(self, *error: Any) -> None:
        entered = self._entered[-1]
        self._entered = self._entered[:-1]
        entered.__exit__(*error)


def in_worker() -> bool:
    """Return whether this process is a DataLoader worker."""
    workers = sys.modules.get("torch.utils.data._utils.worker")
    return workers is not None and workers._worker_info is not None


def refuse_worker(function: str) -> None:
    """Raise RuntimeError in a DataLoader worker."""
    if in_worker():
        raise RuntimeError(
            f"fastseed.{function}: must not be used in a DataLoader worker, where all workers "
            "would draw the same; workers have streams of their own already "
            "(fastseed.data.worker_init_fn, fastseed.data.loader)"
        )


def _check_thread(frame: _Frame) -> None:
    """Raise RuntimeError while another thread is in a block; it waits in a backward pass."""
    if not frame.blocks or frame.blocks[-1].thread == threading.get_ident() or _in_backward():
        return
    raise RuntimeError(
        "fastseed.fork_rng: must not be entered while another thread is inside "
        f"fork_rng({frame.running.name!r}): torch's default generators belong to the "
        "whole process; leave that block first, or give each thread its own torch.Generator"
    )


def _record(frame: _Frame, stream: NamedStream, position: GeneratorState | None) -> None:
    for recording in frame.recordings:
        recording.positions.setdefault(stream, position)
    if _in_backward() and not frame.recomputing and not stream.warned:
        stream.warned = True
        logger.warning(
            "fastseed.fork_rng: %r was entered in a backward pass, where it continues instead "
            "of repeating: recomputation by torch.utils.checkpoint draws other numbers than "
            "the forward pass did; give fork_rng an index=, or checkpoint "
            "context_fn=fastseed.fork_rng_contexts",
            stream.name,
        )


def _in_backward() -> bool:
    """Return whether this thread runs a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


stack = ForkStack()
"""The blocks of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=stack.reset)
