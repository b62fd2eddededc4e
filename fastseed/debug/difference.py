"""One difference between two things that were compared."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """A part in which two trees, recordings, checkpoints or environments differ."""

    name: str
    a: object
    """The value on the first side; None if it is absent there."""
    b: object
    text: str

    def __str__(self) -> str:
        return f"{self.name or '(the tensor)'}: {self.text}"


def sides(name: str, a: object, b: object) -> Difference:
    """Return a difference whose text has both values."""
    shown = ("absent" if side is None else str(side) for side in (a, b))
    return Difference(name, a, b, " | ".join(shown))
