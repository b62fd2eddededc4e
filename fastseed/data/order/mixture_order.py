"""The order of a mixture of sources: which sample of which source is at which position.

The choice of a source is a low-discrepancy sequence, shuffled in blocks (docs/spec/derivation.md
specifies it). So how often a source was chosen before a position is a closed form, and any part of
the order can be computed at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from ..._backend import derive_ops, tensors
from ...derivation import coordinates, streams
from .occurrences import Repeat

BLOCK = 1024  # positions that are shuffled together
_UNIT = 2**32  # the sum of all shares
_STEP = 2654435769  # the fractional part of the golden ratio, times 2**32


def shares_of(weights: list[float]) -> list[int]:
    """Return integers in proportion to ``weights`` whose sum is 2**32, by largest remainders."""
    total = sum(map(Fraction, weights))
    exact = [Fraction(weight) / total * _UNIT for weight in weights]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(shares)), key=lambda s: shares[s] - exact[s])
    for s in by_remainder[: _UNIT - sum(shares)]:
        shares[s] += 1
    return shares


@dataclass(frozen=True)
class Mixture:
    """The order of a mixture in one epoch; it has no end."""

    scope: derive_ops.Scope
    name: str
    names: tuple[str, ...]  # of the sources
    sizes: tuple[int, ...]
    shares: tuple[int, ...]
    skip: tuple[int, ...]  # samples of each source to leave out
    shuffle: bool

    def counts(self, position: int) -> list[int]:
        """Return how many samples each source has before ``position``, without those skipped."""
        block, i = divmod(position, BLOCK)
        before = np.array(self._before(block))
        return list(
            (before + np.bincount(self._sources(block)[:i], minlength=len(before))).tolist()
        )

    def index(self, i: int) -> int:
        """Return the sample at position ``i``, numbered over all sources."""
        return int(next(self._chunks(i, 1, 1))[0])

    def part(self, start: int, count: int, stride: int = 1) -> torch.Tensor:
        """Return the samples at positions start, start + stride, ...: ``count`` of them."""
        indices = itertools.chain.from_iterable(self._chunks(start, stride, count))
        return torch.tensor(list(map(int, indices)), dtype=torch.int64, device="cpu")

    def write_part(self, function: str, out: torch.Tensor, start: int, count: int) -> torch.Tensor:
        """Write the samples at positions start, start + 1, ... to ``out``, which is checked."""
        tensors.check_out(function, "out", out, (count,), torch.int64)
        return out.copy_(self.part(start, count))

    def share(self, first: int, rank: int, world_size: int, size: int) -> Iterator[int]:
        """Yield a rank's ``size`` indices: positions first + rank, and every world_size-th."""
        return itertools.chain.from_iterable(self._chunks(first + rank, world_size, size))

    # ------------------------------------------------------------------ blocks

    def _chunks(self, start: int, stride: int, size: int) -> Iterator[list[int]]:
        """Yield the samples at every stride-th position, those of a block at a time."""
        end, known, before = start + size * stride, -1, [0]
        while start < end:
            block, i = divmod(start, BLOCK)
            if block != known:
                before = self._before(block)
            samples, before = self._block(block, before)
            known = block + 1
            chosen = samples[i : end - block * BLOCK : stride]
            yield chosen
            start += len(chosen) * stride

    def _block(self, block: int, before: list[int]) -> tuple[list[int], list[int]]:
        """Return the samples of a block, and the counts after it."""
        sources = self._sources(block)
        samples = np.empty(BLOCK, dtype=object)
        after, offset = [], 0
        for s, size in enumerate(self.sizes):
            own = np.flatnonzero(sources == s)
            after.append(before[s] + len(own))
            samples[own] = [
                Repeat(offset + j, times) if times else offset + j
                for j, times in self._samples(s, before[s] + self.skip[s], len(own))
            ]
            offset += size
        return samples.tolist(), after

    def _sources(self, block: int) -> np.ndarray:
        """Return the source of each position of a block."""
        key = derive_ops.stream_key(
            self._name_key(self.name), coordinates.SHARED, 0, block, derive_ops.DOMAIN_SHUFFLE
        )
        order = derive_ops.empty_like_keys(BLOCK, dtype=torch.int64)
        derive_ops.fill_shuffle(order, key, BLOCK, 0, 1)
        points = (self._start() + (block * BLOCK + order.numpy()) * _STEP) % _UNIT
        return np.searchsorted(np.cumsum(self.shares), points, side="right")

    def _before(self, block: int) -> list[int]:
        """Return how often each source is chosen before a block."""
        n, start = block * BLOCK, self._start()
        bounds = itertools.accumulate(self.shares, initial=0)
        below = [_count_below(n, start, bound) for bound in bounds]
        return [high - low for low, high in itertools.pairwise(below)]

    def _start(self) -> int:
        """Return the first point of the sequence."""
        return derive_ops.stream_key(self._name_key(self.name), coordinates.SHARED, 0, 0) % _UNIT

    def _samples(self, s: int, first: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield ``count`` samples of a source in its own order, and how often they came before."""
        size = self.sizes[s]
        while count:
            times, i = divmod(first, size)
            here = min(count, size - i)
            if self.shuffle:
                key = derive_ops.stream_key(
                    self._name_key(self.names[s]), 0, times, size, derive_ops.DOMAIN_SHUFFLE
                )
                part = derive_ops.empty_like_keys(here, dtype=torch.int64)
                derive_ops.fill_shuffle(part, key, size, i, 1)
                yield from ((j, times) for j in part.tolist())
            else:
                yield from ((j, times) for j in range(i, i + here))
            first, count = first + here, count - here

    def _name_key(self, name: str) -> derive_ops.NameKey:
        return derive_ops.name_key(self.scope, streams.name_words(name))


def _count_below(n: int, start: int, bound: int) -> int:
    """Return for how many i of [0, n) (start + i * _STEP) mod 2**32 is below ``bound``."""
    # floor(x / m) - floor((x - bound) / m) is 1 where x mod m < bound, else 0 (0 <= bound <= m).
    shifted = start - bound + _UNIT
    return _floor_sum(n, _UNIT, _STEP, start) - _floor_sum(n, _UNIT, _STEP, shifted) + n


def _floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Return the sum of floor((a * i + b) / m) over i of [0, n), in as many steps as gcd(a, m)."""
    total = 0
    while n:
        total += (n - 1) * n // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        highest = a * n + b
        n, b = divmod(highest, m)
        m, a = a, m
    return total
