"""The stack of ``fork_rng`` blocks that this process is in, and their recomputation."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ..generators.accelerator import AcceleratorGenerators

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


class Block:
    """A block that was entered."""

    def __init__(self, stream: NamedStream, accelerators: Sequence[AcceleratorGenerators]) -> None:
        self.stream, self.accelerators = stream, accelerators
        self.thread = threading.get_ident()


class Recording:
    """The positions of continuing streams in a forward pass, for its recomputation."""

    def __init__(self) -> None:
        self.positions: dict[NamedStream, GeneratorState | None] = {}
        self.running: NamedStream | None = None  # the stream of the block around it


class ForkStack:
    """The blocks of this process in the order in which they were entered; the innermost one runs.

    Each stream on the stack holds its own state, but for the innermost one.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all blocks and restore nothing, as a forked child does."""
        self._lock = threading.RLock()
        self._blocks: list[Block] = []  # the first one is what runs outside of all blocks
        self._recordings: list[Recording] = []
        self._recomputing = 0

    def refuse_inside(self, function: str) -> None:
        """Raise RuntimeError inside a block."""
        if self._blocks:
            raise RuntimeError(
                f"fastseed.{function}: must not be called inside a fork_rng block, which restores "
                "the generators when it is left; call it before or after the block"
            )

    def enter(
        self,
        stream: NamedStream,
        accelerators: Sequence[AcceleratorGenerators],
        begin: Callable[[], None],
    ) -> Block:
        """Switch to ``stream``; ``begin`` sets the generators to its beginning."""
        with self._lock:
            self._check_thread()
            before = GeneratorState.capture(accelerators)
            running = self._blocks[-1].stream if self._blocks else NamedStream("", 0)
            position = before if stream is running else stream.state
            try:
                if stream is not running:
                    if position is None:
                        begin()
                    else:
                        position.restore(accelerators)
            except BaseException:
                before.restore(accelerators)
                raise
            if stream.continues:
                self._record(stream, position)
            if not self._blocks:
                self._blocks.append(Block(running, accelerators))
            running.state = before
            block = Block(stream, accelerators)
            self._blocks.append(block)
            return block

    def leave(self, block: Block) -> None:
        """Switch back to what ran before the block.

        Raises:
            RuntimeError: blocks inside it have not been left. They are left with it, so that the
                generators are as they were before the block.
        """
        with self._lock:
            at = next((i for i, b in enumerate(self._blocks) if b is block), 0)
            if at == 0:  # left already: by an outer block, or by a fork of the process
                return
            innermost = self._blocks[-1].stream
            below = self._blocks[at - 1].stream
            inside = [b.stream.name for b in self._blocks[at + 1 :]]
            del self._blocks[at if at > 1 else 0 :]
            if innermost is not below:  # else a stream inside itself, which continues
                try:
                    innermost.state = GeneratorState.capture(block.accelerators)
                finally:
                    assert below.state is not None
                    below.state.restore(block.accelerators)
        if inside:
            raise RuntimeError(
                "fastseed.fork_rng: blocks must be left in the reverse order of entering, but "
                f"{block.stream.name!r} was left before {inside}; the generators are now as they "
                "were before it. Do not suspend a generator or coroutine inside a block"
            )

    def _check_thread(self) -> None:
        """Raise RuntimeError while another thread is in a block; it waits in a backward pass."""
        if not self._blocks or self._blocks[-1].thread == threading.get_ident() or in_backward():
            return
        raise RuntimeError(
            "fastseed.fork_rng: must not be entered while another thread is inside "
            f"fork_rng({self._blocks[-1].stream.name!r}): torch's default generators belong to the "
            "whole process; leave that block first, or give each thread its own torch.Generator"
        )

    # ------------------------------------------------------------------ recomputation

    def _record(self, stream: NamedStream, position: GeneratorState | None) -> None:
        for recording in self._recordings:
            recording.positions.setdefault(stream, position)
        if in_backward() and not self._recomputing and not stream.warned:
            stream.warned = True
            logger.warning(
                "fastseed.fork_rng: %r was entered in a backward pass, where it continues instead "
                "of repeating: recomputation by torch.utils.checkpoint draws other numbers than "
                "the forward pass did; give fork_rng an index=, or checkpoint "
                "context_fn=fastseed.fork_rng_contexts",
                stream.name,
            )

    @contextlib.contextmanager
    def record(self, recording: Recording) -> Iterator[None]:
        """Note where each continuing stream is when it is first entered."""
        recording.running = self._blocks[-1].stream if self._blocks else None
        self._recordings.append(recording)
        try:
            yield
        finally:
            self._recordings = [kept for kept in self._recordings if kept is not recording]

    @contextlib.contextmanager
    def recompute(self, recording: Recording) -> Iterator[None]:
        """Let streams continue from where they were recorded, and put them back afterwards."""
        recordings, self._recordings = self._recordings, []
        around = recording.running or NamedStream("", 0)
        held = {stream: stream.state for stream in (around, *recording.positions)}
        for stream, position in recording.positions.items():
            stream.state = position
        added = [Block(around, ())]
        if not self._blocks:
            added.insert(0, Block(NamedStream("", 0), ()))
        if self._blocks or recording.running:
            self._blocks += added
        self._recomputing += 1
        try:
            yield
        finally:
            self._recomputing -= 1
            self._blocks = [block for block in self._blocks if block not in added]
            for stream, state in held.items():
                stream.state = state
            self._recordings = recordings


class RecomputeContext:
    """:meth:`ForkStack.recompute` as a context manager that can be entered more than once."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._entered: list[contextlib.AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        self._entered.append(stack.recompute(self._recording))
        self._entered[-1].__enter__()

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)


def in_backward() -> bool:
    """Return whether this thread runs a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


stack = ForkStack()
"""The blocks of this process: torch's default generators belong to the process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=stack.reset)
