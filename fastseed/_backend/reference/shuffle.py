"""The shuffle, version 1, in plain NumPy: the oracle of the tests and the fallback.

``docs/spec/derivation.md`` ("Shuffle") is the specification. A *key* is 128 bits; positions and
numbers are of [0, n). Arguments are trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from . import philox
from .philox import Uint64s
from .scalar import DOMAIN_SHUFFLE

I64 = npt.NDArray[np.int64]

MAX_N = 2**48
_SMALL, _ROUNDS_OF_SMALL, _ROUNDS = 2**16, 24, 12
_LOW32, _LOW64 = 2**32 - 1, 2**64 - 1
_CHUNK = 1 << 15  # positions computed at a time: the temporaries stay in the cache


def sides(n: int) -> tuple[int, int]:
    """The rectangle, at least n large, that the rounds work on."""
    s = math.isqrt(n - 1) + 1
    a = max(4, s + s % 2)
    return a, max(4, -(-n // a))


def rounds(n: int) -> int:
    """How many rounds there are."""
    return _ROUNDS_OF_SMALL if n <= _SMALL else _ROUNDS


def _step(key: int, r: int, v: Uint64s, m: int) -> Uint64s:
    """High 64 bits of (w m), w being 64 bits of the block of ``v``: in [0, m). Of uint64 arrays."""
    hi, shift, factor = key >> 64, np.uint64(32), np.uint64(m)
    w1, w2, w3 = map(np.uint64, (r | DOMAIN_SHUFFLE << 24, hi & _LOW32, hi >> 32))
    r0, r1, _, _ = philox.blocks(key & _LOW64, v, w1, w2, w3)
    return (r1 * factor + (r0 * factor >> shift)) >> shift


def indices(key: int, n: int, start: int, stride: int, count: int) -> I64:
    """The numbers at positions start, start + stride, ...: ``(count,)``."""
    out = np.zeros(count, np.int64)
    for at in range(0, count, _CHUNK):
        part = out[at : at + _CHUNK]
        x = np.uint64(start) + np.arange(at, at + len(part), dtype=np.uint64) * np.uint64(stride)
        part[:] = _cycle_walk(key, n, x, _permute)
    return out


def positions(key: int, n: int, numbers: I64) -> I64:
    """The position of each number, -1 of one that is not in [0, n): of the same shape."""
    out = np.full(numbers.shape, -1, np.int64)
    inside = np.flatnonzero((numbers >= 0) & (numbers < n))
    for at in range(0, len(inside), _CHUNK):
        part = inside[at : at + _CHUNK]
        out[part] = _cycle_walk(key, n, numbers[part].astype(np.uint64), _unpermute)
    return out


def _cycle_walk(
    key: int, n: int, x: Uint64s, permute: Callable[[int, int, Uint64s], Uint64s]
) -> Uint64s:
    """All rounds by ``permute``, as often as it takes to arrive below n."""
    if n == 1:
        return np.zeros_like(x)
    x = permute(key, n, x)
    while (outside := np.flatnonzero(x >= np.uint64(n))).size:
        x[outside] = permute(key, n, x[outside])
    return x


def _permute(key: int, n: int, x: Uint64s) -> Uint64s:
    """All rounds, once."""
    (a, b), count = sides(n), rounds(n)
    left, right = np.divmod(x, np.uint64(b))
    for r in range(0, count, 2):
        left = (left + _step(key, r, right, a)) % np.uint64(a)
        right = (right + _step(key, r + 1, left, b)) % np.uint64(b)
    return left * np.uint64(b) + right


def _unpermute(key: int, n: int, x: Uint64s) -> Uint64s:
    """All rounds backwards, once."""
    (a, b), count = sides(n), rounds(n)
    left, right = np.divmod(x, np.uint64(b))
    for r in range(count - 2, -1, -2):
        right = (right + np.uint64(b) - _step(key, r + 1, left, b)) % np.uint64(b)
        left = (left + np.uint64(a) - _step(key, r, right, a)) % np.uint64(a)
    return left * np.uint64(b) + right
