"""The stack of ``fork_rng`` blocks that this process is in.

torch's default generators belong to the process, so its blocks form one stack. The innermost block
runs; each entry holds a snapshot of what ran before it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._backend import private_torch
from ...derivation import blocks
from ...generators.accelerator import AcceleratorGenerators
from ...random.keyed import open_blocks as keyed_blocks
from ..process_lock import process


class ForkEntry:
    """One entry of a block by this thread."""

    def __init__(
        self, block: object, name: str, accelerators: Sequence[AcceleratorGenerators]
    ) -> None:
        self._block: weakref.ref[Any] = weakref.ref(block)
        self.name, self._accelerators = name, accelerators
        self.thread, self.task = threading.get_ident(), blocks.current_task()
        self.in_backward = private_torch.in_backward()

    def save(self) -> None:
        """Keep what torch's default generators are now."""
        self._cpu = torch.default_generator.get_state()
        self._devices = [accelerator.save() for accelerator in self._accelerators]

    def restore(self) -> None:
        """Put torch's default generators back to what they were before the entry."""
        torch.default_generator.set_state(self._cpu)
        for accelerator, held in zip(self._accelerators, self._devices, strict=True):
            accelerator.restore(held)

    @property
    def is_abandoned(self) -> bool:
        """Whether an interrupt kept it from being left: its block is gone, or no longer has it."""
        block = self._block()
        return block is None or self not in block.entries


def enter(entry: ForkEntry, begin: Callable[[], None]) -> None:
    """Switch to the stream of ``entry``; ``begin`` sets the generators to its beginning."""
    with process.lock:
        process.refuse_nested("fork_rng")
        _check_thread(entry)
        entry.save()
        try:
            begin()
        except BaseException:
            entry.restore()
            raise
        process.blocks = (*process.blocks, entry)


def leave(entry: ForkEntry, *, in_order: bool = False) -> None:
    """Switch back to what ran before ``entry``, if an outer block or ``os.fork`` has not left it.

    Blocks inside it that were not left are left, too; that is a RuntimeError under ``in_order``.
    """
    with process.lock:
        blocks = process.blocks
        if entry not in blocks:
            return
        at = blocks.index(entry)
        inside = [inner.name for inner in blocks[at + 1 :]]
        entry.restore()
        process.blocks = blocks[:at]
    if inside and in_order:
        raise RuntimeError(
            "fastseed.fork_rng: blocks must be left in the reverse order of entering, but "
            f"{entry.name!r} was left before {inside}; the generators are now as they "
            "were before it. Do not suspend a generator or coroutine inside a block"
        )


def refuse_inside(function: str) -> None:
    """Raise RuntimeError inside a block. Abandoned blocks are left."""
    while process.blocks and process.blocks[-1].is_abandoned:
        leave(process.blocks[-1])
    if process.blocks:
        raise RuntimeError(
            f"fastseed.{function}: must not be called inside a fork_rng block, which restores "
            "the generators when it is left; call it before or after the block"
        )


def open_blocks() -> list[object]:
    """Return the blocks of both kinds that this thread is in."""
    own = [entry for entry in process.blocks if entry.thread == threading.get_ident()]
    return [*keyed_blocks(), *own]


def _check_thread(entry: ForkEntry) -> None:
    """Raise RuntimeError in another's block, unless its thread waits for this backward pass."""
    running = process.blocks[-1] if process.blocks else entry
    if running.thread == entry.thread:
        if running.task is entry.task:
            return
        raise RuntimeError(
            "fastseed.fork_rng: must not be entered while another asyncio task is inside "
            f"fork_rng({running.name!r}): {blocks.ONE_TASK}"
        )
    if entry.in_backward and not running.in_backward:  # it called backward() inside its block
        return
    raise RuntimeError(
        "fastseed.fork_rng: must not be entered while another thread is inside "
        f"fork_rng({running.name!r}): torch's default generators belong to the "
        "whole process; leave that block first, or give each thread its own torch.Generator"
    )
