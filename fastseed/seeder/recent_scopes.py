"""Detects reseeding to a scope that was already used: its random numbers repeat."""

from __future__ import annotations

import array


class RecentScopes:
    """The scopes that this process has used, in 256 KiB.

    A table of hashes, each in the slot that its low bits name. A new one may replace another, whose
    repetition is then not detected; a false alarm needs two scopes with equal 64-bit hashes.
    """

    _SLOTS = 1 << 15

    def __init__(self) -> None:
        self._hashes = array.array("q", bytes(8 * self._SLOTS))

    def add(self, scope: tuple[int, ...]) -> bool:
        """Remember a scope; return whether it was there already."""
        number = hash(scope)
        slot = number & (self._SLOTS - 1)
        if self._hashes[slot] == number:
            return True
        self._hashes[slot] = number
        return False
