"""Detects reseeding to a scope that was already used: its random numbers repeat."""

from __future__ import annotations

import array

from .._utils.log import logger

_SLOTS = 1 << 15
_MOST_WARNINGS = 10


class RecentScopes:
    """The scopes that this process has used, as (master seed, task, epoch, step), in 256 KiB.

    A table of hashes, each in the slot that its low bits name. A new one may replace another, whose
    repetition is then not detected; a false alarm needs two scopes with equal 64-bit hashes.
    ``process.lock`` is held while it changes.
    """

    def __init__(self) -> None:
        self._hashes = array.array("q", bytes(8 * _SLOTS))
        self.repeats = 0
        self.used = False  # whether any scope was remembered

    def note(self, scope: tuple[int, ...]) -> None:
        """Remember a scope; log a warning if it was used before."""
        self.used = True
        number = hash(scope)
        slot = number & (_SLOTS - 1)
        was = self._hashes[slot]
        self._hashes[slot] = number
        if was != number:
            return
        self.repeats += 1
        if self.repeats <= _MOST_WARNINGS:
            logger.warning(
                "fastseed.reseed: task %d, epoch %d, step %d was used before in this process: "
                "its random numbers repeat%s",
                *scope[1:],
                "; further repetitions are not reported" if self.repeats == _MOST_WARNINGS else "",
            )
