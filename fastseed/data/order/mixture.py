"""The order of a mixture of named sources, as a function.

The choice of a source is a low-discrepancy sequence, shuffled in blocks (docs/spec/derivation.md
specifies it). So how often a source was chosen before a position is a closed form, and any part of
the order can be computed at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from ..._backend import derive
from ..._backend.reference import scalar
from ...derivation import scopes, streams
from .permutation import Array, Order, Permutation, check_visits
from .repeats import Repeat

N = TypeVar("N", int, np.ndarray)

BLOCK = 1024  # positions that are shuffled together
UNIT = 2**32  # the sum of all shares; as many points in a row are all different
STEP = 2654435769  # the fractional part of the golden ratio, times 2**32
_BLOCKS = UNIT // BLOCK
_MOST_PERIODS = 2**16  # positions are below 2**48
_FEW = 24  # numbers that Python's integers are faster for
_INTERPOLATED = 4  # steps, before the interval is halved


class Source(NamedTuple):
    """A source of a mixture."""

    name: str
    size: int
    share: int  # of 2**32
    skip: int  # samples that are left out at the beginning


def shares_of(weights: list[float]) -> list[int]:
    """Return integers in proportion to ``weights`` whose sum is 2**32, by largest remainders."""
    total = sum(map(Fraction, weights))
    exact = [Fraction(weight) / total * UNIT for weight in weights]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(shares)), key=lambda s: shares[s] - exact[s])
    for s in by_remainder[: UNIT - sum(shares)]:
        shares[s] += 1
    return shares


@dataclass(frozen=True)
class Mixture(Order):
    """The order of a mixture in one epoch; it has no end."""

    scope: scalar.ScopeKey
    name: str
    sources: tuple[Source, ...]
    shuffle: bool

    @property
    def period(self) -> int:
        """Positions in which every sample of every source comes, but for a few."""
        return max(source.size * UNIT // source.share for source in self.sources)

    def counts(self, position: int) -> list[int]:
        """Return how many samples each source has before ``position``, without those skipped."""
        block, i = divmod(position, BLOCK)
        before = np.array(self._before(block))
        inside = np.bincount(self._sources(block)[:i], minlength=len(before))
        return list((before + inside).tolist())

    def entries(self, start: int, count: int) -> tuple[Array, Array]:
        found = [(np.empty(0, np.int64),) * 2, *self._parts(start, start + count)]
        samples, occurrences = map(np.concatenate, zip(*found, strict=True))
        return samples, occurrences

    def _chunks(self, start: int, stride: int, size: int) -> Iterator[list[int]]:
        for samples, occurrences in self._parts(start, start + size * stride, stride):
            columns = zip(samples.tolist(), occurrences.tolist(), strict=True)
            yield [Repeat(j, times) if times else j for j, times in columns]

    def _parts(self, start: int, end: int, stride: int = 1) -> Iterator[tuple[Array, Array]]:
        """Yield (samples, occurrences) at every stride-th position, those of a block at a time."""
        known, before = -1, np.empty(0, np.int64)
        while start < end:
            block, i = divmod(start, BLOCK)
            if block != known:
                before = np.array(self._before(block))
            sources, part = self._sources(block), slice(i, end - block * BLOCK)
            passed = np.bincount(sources[:i], minlength=len(before))
            samples, occurrences = self._of_sources(sources[part], (before + passed).tolist())
            yield samples[::stride], occurrences[::stride]
            before += np.bincount(sources, minlength=len(before))
            known = block + 1
            start += -(-len(samples) // stride) * stride

    def _of_sources(self, sources: np.ndarray, before: list[int]) -> tuple[Array, Array]:
        """Return (samples, occurrences) where these sources are chosen, so often chosen before."""
        samples = np.empty(len(sources), np.int64)
        occurrences = np.empty(len(sources), np.int64)
        offset = 0
        for s, (_, size, _, skip) in enumerate(self.sources):
            own = np.flatnonzero(sources == s)
            done, turn = 0, before[s] + skip
            while done < len(own):  # a pass through the source at a time
                times, i = divmod(turn + done, size)
                here = own[done : done + size - i]
                samples[here] = self._pass(s, times).part(i, len(here)).numpy() + offset
                occurrences[here] = times
                done += len(here)
            offset += size
        return samples, occurrences

    def visits(self, samples: Array, limit: int) -> tuple[Array, Array, Array]:
        ends = np.cumsum([source.size for source in self.sources])
        found = [(np.empty(0, np.int64),) * 3]
        sources = np.searchsorted(ends, samples, side="right")
        for s in np.unique(sources[(samples >= 0) & (samples < ends[-1])]).tolist():
            which = np.flatnonzero(sources == s)
            skipped, size = self.sources[s].skip, self.sources[s].size
            own = samples[which] - (ends[s] - size)
            count = self.counts(limit)[s]
            passes = range(skipped // size, -(-(count + skipped) // size))
            check_visits(len(own), len(passes))
            for times in passes:
                turns = self._pass(s, times).positions(torch.from_numpy(own)).numpy()
                turns = turns + (times * size - skipped)
                here = np.flatnonzero((turns >= 0) & (turns < count))
                places = self.positions(s, turns[here])
                found.append((which[here], places, np.full(len(here), times)))
        which, places, occurrences = map(np.concatenate, zip(*found, strict=True))
        return which, places, occurrences

    def positions(self, source: int, turns: np.ndarray) -> np.ndarray:
        """Return where a source is chosen for the ``turns``-th time, from 0, without those skipped.

        Positions that are not below 2**48 are -1.
        """
        low = sum(part.share for part in self.sources[:source])
        of_source = ShareOfPoints(self._start(), low, low + self.sources[source].share)
        blocks, rest = of_source.blocks_of(turns)
        out = np.full(len(turns), -1, np.int64)
        for block in np.unique(blocks[blocks >= 0]).tolist():
            here = blocks == block
            own = np.flatnonzero(self._sources(block) == source)
            out[here] = block * BLOCK + own[rest[here]]
        return out

    def _sources(self, block: int) -> np.ndarray:
        key = derive.stream_key(
            self._name_key(self.name), scopes.SHARED, 0, block, scalar.DOMAIN_SHUFFLE
        )
        order = derive.empty_words(BLOCK, dtype=torch.int64)
        derive.fill_shuffle(order, key, BLOCK, 0, 1)
        points = (self._start() + (block * BLOCK + order.numpy()) * STEP) % UNIT
        ends = np.cumsum([source.share for source in self.sources])
        return np.searchsorted(ends, points, side="right")

    def _before(self, block: int) -> list[int]:
        start = self._start()
        ends = itertools.accumulate((source.share for source in self.sources), initial=0)
        pairs = itertools.pairwise(ends)
        return [ShareOfPoints(start, *bounds).before(block) for bounds in pairs]

    def _start(self) -> int:
        return derive.stream_key(self._name_key(self.name), scopes.SHARED, 0, 0) % UNIT

    def _pass(self, s: int, times: int) -> Permutation:
        """Return the order of a source when it was exhausted so many times."""
        name, size, *_ = self.sources[s]
        if not self.shuffle:
            return Permutation(size, None)
        if times > scopes.MAX_WORKER:
            raise RuntimeError(
                f"fastseed.data.MixtureSampler: source {name!r} must be exhausted fewer than 2**32 "
                f"times, got {times}"
            )
        key = self._name_key(name)
        return Permutation(size, derive.stream_key(key, 0, times, size, scalar.DOMAIN_SHUFFLE))

    def _name_key(self, name: str) -> scalar.NameKey:
        return derive.name_key(self.scope, streams.name_words(name))


@dataclass(frozen=True)
class ShareOfPoints:
    """The points of [low, high), 0 <= low < high <= 2**32, of start + i * STEP modulo 2**32."""

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
        above_low = self.start - self.low + UNIT
        above_high = self.start - self.high + UNIT
        found: N = _floor_sum(n, UNIT, STEP, above_low) - _floor_sum(n, UNIT, STEP, above_high)
        return found

    def _counts(self, points: np.ndarray) -> np.ndarray:
        if len(points) < _FEW:
            return np.array([self._count(n) for n in points.tolist()])
        return self._count(points.astype(np.uint64)).astype(np.int64)

    def blocks_of(self, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the block of the k-th point in the interval, for each k of ``turns`` from 0.

        Also return how many points of that block come before. A block is -1 from position 2**48 on.
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
