"""Who sets the generators of this process: one thread at a time, never a DataLoader worker.

``lock`` is held while torch's default generators are set. A forked child has one of its own, and is
outside of all blocks of ``fork_rng``.
"""

from __future__ import annotations

import os
import threading
from typing import Any


class ProcessLock:
    """The lock, and what its holder is doing."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget what threads of the parent were doing, as a forked child does."""
        # The garbage collector may close a generator that is inside a block: the same thread again.
        self.lock = threading.RLock()
        # Taken in a reseed by the thread that holds `lock`. `with` of a C lock always releases it.
        self.reseeding = threading.Lock()
        self.blocks: tuple[Any, ...] = ()  # of fork_rng, the outermost first
        self.thread = threading.get_ident()  # of the last reseed
        # Whether it is known: a process that is not one at its first reseed will be none later.
        self.is_no_worker = False

    def refuse_nested(self, function: str) -> None:
        """Raise RuntimeError in a generator that this thread reseeds. The lock must be held."""
        if self.reseeding.locked():
            raise RuntimeError(
                f"fastseed.{function}: must not be called by a generator that it is "
                "reseeding; let the function take its seed and return"
            )

    def refuse_inside(self, function: str) -> None:
        """Raise RuntimeError inside a block of ``fork_rng``. Abandoned blocks are left."""
        while self.blocks and self.blocks[-1].is_abandoned:
            self.blocks[-1].leave()
        if self.blocks:
            raise RuntimeError(
                f"fastseed.{function}: must not be called inside a fork_rng block, which restores "
                "the generators when it is left; call it before or after the block"
            )


process = ProcessLock()
os.register_at_fork(after_in_child=process.reset)
