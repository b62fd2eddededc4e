"""How often a golden ratio sequence has been in an interval, and when for the k-th time.

The points are start + i * STEP modulo 2**32 (a Weyl sequence); a mixture has 1024 of them in a
block. ``docs/spec/derivation.md`` ("Mixtures") specifies both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

N = TypeVar("N", int, np.ndarray)

BLOCK = 1024  # positions that are shuffled together
UNIT = 2**32  # the sum of all shares; as many points in a row are all different
STEP = 2654435769  # the fractional part of the golden ratio, times 2**32
_BLOCKS = UNIT // BLOCK
_MOST_PERIODS = 2**16  # positions are below 2**48
_FEW = 24  # numbers that Python's integers are faster for
_INTERPOLATED = 4  # steps, before the interval is halved


@dataclass(frozen=True)
class ShareOfPoints:
    """The points of [low, high), 0 <= low < high <= 2**32."""

    start: int  # the first point, [0, 2**32)
    low: int
    high: int

    def before(self, block: int) -> int:
        """Return how many of the points before a block are in the interval."""
        periods, blocks = divmod(block, _BLOCKS)
        return periods * (self.high - self.low) + self._count(blocks * BLOCK)

    def _count(self, n: N) -> N:
        """Return how many of the first n points, n < 2**32, are in the interval."""
        # floor((x - low) / m) - floor((x - high) / m) is 1 where low <= x mod m < high, else 0
        above_low, above_high = self.start - self.low + UNIT, self.start - self.high + UNIT
        found: N = _floor_sum(n, UNIT, STEP, above_low) - _floor_sum(n, UNIT, STEP, above_high)
        return found

    def _counts(self, points: np.ndarray) -> np.ndarray:
        if len(points) < _FEW:
            return np.array([self._count(n) for n in points.tolist()])
        return self._count(points.astype(np.uint64)).astype(np.int64)

    def blocks_of(self, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the block of the k-th point in the interval, and how many it has there before.

        Args:
            turns: the numbers k, from 0, (count,), int64.

        Returns:
            (blocks, rest), both (count,), int64; a block is -1 for positions from 2**48 on.
        """
        share = self.high - self.low
        periods, left = np.divmod(turns, share)
        # count(low) <= k < count(high), and before = count(low)
        low, high, before = np.zeros_like(left), np.full_like(left, _BLOCKS), np.zeros_like(left)
        step, open_ = 0, np.arange(len(left))
        while len(open_):
            first, last = low[open_], high[open_]
            by_share = first + ((left - before)[open_] * (_BLOCKS / share)).astype(np.int64)
            guess = by_share if step < _INTERPOLATED else (first + last) // 2
            guess = np.clip(guess, first + 1, last - 1)
            counts = self._counts(guess * BLOCK)
            is_below = counts <= left[open_]
            low[open_[is_below]], before[open_[is_below]] = guess[is_below], counts[is_below]
            high[open_[~is_below]] = guess[~is_below]
            open_, step = open_[(high - low)[open_] > 1], step + 1
        blocks = np.where(periods < _MOST_PERIODS, periods * _BLOCKS + low, -1)
        return blocks, left - before


def _floor_sum(n: N, m: int, a: int, first: int) -> N:
    """Return the sum of floor((a * i + first) / m) over i of [0, n), in as many steps as gcd(a, m).

    An array holds uint64 below 2**32; its sums are modulo 2**64.
    """
    total: N = 0 * n
    b: N = first + total
    while n.any() if isinstance(n, np.ndarray) else n:
        total += (n - 1) * n // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        n, b = divmod(a * n + b, m)
        m, a = a, m
    return total
