"""The stack of ``fork_rng`` blocks that this process is in.

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

import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch

from ...derivation.streams import Stream
from ...generators.accelerator import AcceleratorGenerators

logger = logging.getLogger("fastseed")

Snapshot: TypeAlias = list[torch.Tensor] | Stream | None
"""A return value of ``AcceleratorGenerators.snapshot``."""


class GeneratorState(NamedTuple):
    """A snapshot of torch's default generators."""

    cpu: torch.Tensor
    devices: Sequence[Snapshot]

    @classmethod
    def capture(cls, accelerators: Sequence[AcceleratorGenerators]) -> GeneratorState:
        """Return the present state."""
        return cls(torch.default_generator.get_state(), [a.save() for a in accelerators])

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
    """One entry of a block. ``ForkStack.enter`` fills it."""

    stream: NamedStream
    accelerators: Sequence[AcceleratorGenerators]
    thread = 0
    end: GeneratorState | None = None  # where its stream was when it began to be left


class ForkStack:
    """The blocks in the order in which they were entered."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all blocks and restore nothing, as a forked child does."""
        # The garbage collector may close a generator that is inside a block: the same thread again.
        self.lock = threading.RLock()
        self.blocks: list[Block] = []
        self._outside = NamedStream("", 0)

    @property
    def _running(self) -> NamedStream:
        return self.blocks[-1].stream if self.blocks else self._outside

    def refuse_inside(self, function: str) -> None:
        """Raise RuntimeError inside a block."""
        if self.blocks:
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
            self._check_thread()
            block.stream, block.accelerators = stream, accelerators
            block.thread = threading.get_ident()
            running, before = self._running, GeneratorState.capture(accelerators)
            position = before if stream is running else stream.state
            try:
                if position is None:
                    begin()
                else:
                    position.restore(accelerators)
                _warn_if_recomputed(stream)
            except BaseException:
                before.restore(accelerators)
                raise
            running.state = before
            self.blocks = [*self.blocks, block]

    def leave(self, block: Block, *, in_order: bool = False) -> None:
        """Switch back to what ran before the block, also where blocks inside it were not left.

        After an interrupt another call completes it. RuntimeError under ``in_order`` if blocks
        inside it were not left.
        """
        with self.lock:
            if block not in self.blocks:  # left already by an outer block, or os.fork was called
                return
            at = self.blocks.index(block)
            inside = [inner.stream.name for inner in self.blocks[at + 1 :]]
            running, outer = self._running, self.blocks[at - 1].stream if at else self._outside
            if block.end is None:
                block.end = GeneratorState.capture(block.accelerators)
            state = block.end if outer is running else outer.state
            assert state is not None
            state.restore(block.accelerators)
            running.state = block.end
            self.blocks = self.blocks[:at]
        if inside and in_order:
            raise RuntimeError(
                "fastseed.fork_rng: blocks must be left in the reverse order of entering, but "
                f"{block.stream.name!r} was left before {inside}; the generators are now as they "
                "were before it. Do not suspend a generator or coroutine inside a block"
            )

    def _check_thread(self) -> None:
        """Raise RuntimeError while another thread is in a block; it waits in a backward pass."""
        own = not self.blocks or self.blocks[-1].thread == threading.get_ident()
        if own or _in_backward():
            return
        raise RuntimeError(
            "fastseed.fork_rng: must not be entered while another thread is inside "
            f"fork_rng({self._running.name!r}): torch's default generators belong to the "
            "whole process; leave that block first, or give each thread its own torch.Generator"
        )


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
            "(fastseed.data.worker_init_fn, fastseed.data.Loader)"
        )


def _warn_if_recomputed(stream: NamedStream) -> None:
    """Warn, once of each stream, where activation checkpointing may recompute the block."""
    if stream.continues and not stream.warned and _in_backward():
        stream.warned = True
        logger.warning(
            "fastseed.fork_rng: %r was entered in a backward pass, where it continues instead "
            "of repeating: recomputation by torch.utils.checkpoint draws other numbers than "
            "the forward pass did; give fork_rng an index=",
            stream.name,
        )


def _in_backward() -> bool:
    """Return whether this thread runs a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


stack = ForkStack()
"""The blocks of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=stack.reset)
