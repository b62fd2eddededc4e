"""Orders that samplers are compared with."""

from __future__ import annotations

from fastseed.data import shuffled_indices

SIZES = (1, 2, 3, 4, 5, 7, 12, 16, 17, 30, 97, 100, 300, 1000)
WORLDS = (1, 2, 3, 4, 5, 8, 64)


def order(n: int, epoch: int = 7, **more) -> list[int]:
    return shuffled_indices(0, n, n, task=1, epoch=epoch, **more).tolist()


def turns(found: list[list[int]]) -> list[int]:
    """The ranks' indices as they come when ranks take turns."""
    return [index for step in zip(*found, strict=True) for index in step]
