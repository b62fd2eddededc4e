"""Randomness that belongs to a sample, whoever fetches it."""

from __future__ import annotations

from typing import Any

from .. import streams

MAX_INDEX = 2**48 - 1
MAX_OCCURRENCE = 2**16 - 1


class Repeat(int):
    """The index of a sample that comes again in an epoch.

    An int like any other, with ``occurrence``: 1 when the sample comes for the second time, and
    so on. A plain int stands for occurrence 0.
    """

    occurrence: int

    def __new__(cls, index: int, occurrence: int = 1) -> Repeat:
        index = streams.check_int("Repeat", "index", index, 0, MAX_INDEX)
        repeat = super().__new__(cls, index)
        repeat.occurrence = streams.check_int("Repeat", "occurrence", occurrence, 1, MAX_OCCURRENCE)
        return repeat

    def __reduce__(self) -> tuple[Any, ...]:
        return Repeat, (int(self), self.occurrence)

    def __repr__(self) -> str:
        return f"Repeat({int(self)}, occurrence={self.occurrence})"

    __str__ = int.__repr__  # in file names, as any index
