"""Which scopes a process has been in: repeating one repeats its random numbers."""

from __future__ import annotations

import array


class Seen:
    """Which scopes this process has been in, in 256 KiB however long it runs.

    A table of scope keys, each in the slot that its low bits name. A new one evicts another now
    and then, and that scope's repetition then goes unnoticed; a false alarm needs two equal 64-bit
    keys.
    """

    _SLOTS = 1 << 15

    def __init__(self) -> None:
        self._keys = array.array("Q", bytes(8 * self._SLOTS))

    def add(self, key: int) -> bool:
        """Remember; whether it was there already."""
        slot = key & (self._SLOTS - 1)
        if self._keys[slot] == key:
            return True
        self._keys[slot] = key
        return False
