"""The draws in plain NumPy: the oracle of the tests and the fallback.

``docs/spec/random.md`` is the specification.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from . import philox
from .fp_math import Real, Reals, normal_quantile, standard_exponential, standard_normal
from .philox import U32, U64, Array
from .scalar import block as _block

RETRY_TAG = 0x80  # the top byte of a retry's second counter word; that of a draw is 0
RETRY_TAGS = 128
_LOW32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def words32(keys: U64, positions: U64, first_block: int, blocks: int) -> U32:
    """The words of ``blocks`` blocks of each stream, from a block of the draw on, (n, 4 * blocks).

    The draw begins at the first whole block from the stream's position on.
    """
    out = np.empty((len(keys), 4 * blocks), np.uint32)
    counts = np.arange(blocks, dtype=np.uint64) + np.uint64(first_block)
    for row, (lo, hi), position in zip(out, keys.tolist(), positions.tolist(), strict=True):
        b = counts + np.uint64((position + 3) % 2**64 // 4)
        row[:] = philox.words_of_blocks([lo, hi], b).reshape(-1)
    return out


def _values(
    keys: U64,
    positions: U64,
    start: int,
    count: int,
    words: int,
    convert: Callable[[Array], Array],
) -> Array:
    """Values ``start`` to ``start + count - 1`` of each stream, (n, count); ``words`` a value."""
    per_block = 4 // words
    first, last = start // per_block, -(-(start + count) // per_block)
    raw = words32(keys, positions, first, last - first)
    with np.errstate(all="ignore"):  # whatever the user wants to hear of
        values = convert(raw if words == 1 else raw.view("<u8"))
    at = start - first * per_block
    return np.ascontiguousarray(values[:, at : at + count])


def _rounded(x: Reals, kind: str) -> Reals:
    """Rounded to ``kind``; 16-bit reals stay in float32, which holds them exactly."""
    if kind == "float16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    if kind == "bfloat16":
        bits = x.view(np.uint32)
        even = bits >> np.uint32(16) & np.uint32(1)
        return ((bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)).view(np.float32)
    return x


def _real(kind: str) -> Real:
    """The type that ``kind`` is computed in."""
    return np.float64 if kind == "float64" else np.float32


def _reals(
    keys: U64, positions: U64, start: int, count: int, kind: str, convert: Callable[[Array], Reals]
) -> Reals:
    """Values of a real type, of as many bits of words each."""
    words = 2 if kind == "float64" else 1
    return _values(keys, positions, start, count, words, lambda raw: _rounded(convert(raw), kind))


def bits(keys: U64, positions: U64, start: int, count: int, words: int) -> Array:
    """The words themselves: uint32, or uint64 with ``words`` 2."""
    return _values(keys, positions, start, count, words, lambda raw: raw)


def uniform(
    keys: U64, positions: U64, start: int, count: int,
    kind: str, span: float, shift: float, cap: float,
) -> Reals:  # fmt: skip
    """min(u * span + shift, cap), u the first 24 (53) bits of a word as a number in [0, 1)."""
    real = _real(kind)
    drop, unit = (8, 2.0**-24) if real is np.float32 else (11, 2.0**-53)

    def convert(raw: Array) -> Reals:
        u = (raw >> raw.dtype.type(drop)).astype(real) * real(unit)
        return np.minimum(u * real(span) + real(shift), real(cap))

    return _reals(keys, positions, start, count, kind, convert)


def normal(
    keys: U64, positions: U64, start: int, count: int, kind: str, mean: float, std: float
) -> Reals:
    """z * std + mean of standard normals z."""
    real = _real(kind)

    def convert(raw: Array) -> Reals:
        return standard_normal(raw) * real(std) + real(mean)

    return _reals(keys, positions, start, count, kind, convert)


def exponential(
    keys: U64, positions: U64, start: int, count: int, kind: str, scale: float
) -> Reals:
    """-ln u * scale."""
    factor = _real(kind)(scale)
    return _reals(
        keys, positions, start, count, kind, lambda raw: standard_exponential(raw) * factor
    )


def trunc_normal(
    keys: U64, positions: U64, start: int, count: int, kind: str,
    mean: float, std: float, middle: float, span: float, below: float, above: float,
    low: float, high: float,
) -> Reals:  # fmt: skip
    """z * std + mean of the ``span`` of the distribution between two z, held in [low, high]."""
    real = _real(kind)
    bits, signed = (32, np.int32) if real is np.float32 else (64, np.int64)

    def convert(raw: Array) -> Reals:
        one, top = raw.dtype.type(1), raw.dtype.type(1 << (bits - 1))
        odd = raw | one
        lower = odd >= top
        place, edge = (
            x.view(signed).astype(real) * real(2.0**-bits)
            for x in (odd, np.where(lower, odd ^ top, top - odd))
        )
        q = place * real(span) + real(middle)
        left = q < 0
        inside = np.where(left == lower, edge, real(1) - edge)
        t = inside * real(span) + np.where(left, real(below), real(above))
        x = normal_quantile(q, t) * real(std) + real(mean)
        return np.minimum(np.maximum(x, real(low)), real(high))

    return _reals(keys, positions, start, count, kind, convert)


def bernoulli(
    keys: U64, positions: U64, start: int, count: int, threshold: int
) -> npt.NDArray[np.bool_]:
    """Return which words are below ``threshold`` (of 2**32)."""
    limit = np.uint64(threshold)
    return _values(keys, positions, start, count, 1, lambda raw: raw.astype(np.uint64) < limit)


def randint(
    keys: U64, positions: U64, start: int, count: int, low: int, range_: int
) -> npt.NDArray[np.int64]:
    """``low`` + an unbiased number in [0, ``range_`` modulo 2**64), as int64."""
    range_ %= 2**64
    wide = range_ >> 32 != 0
    words, modulus = (2, 2**64) if wide else (1, 2**32)
    threshold = modulus % range_
    raw = bits(keys, positions, start, count, words)
    high, low_part = _products(raw, range_)
    for row, column in np.argwhere(low_part < threshold):
        word = (int(positions[row]) + 3) // 4 * 4 + (start + int(column)) * words
        high[row, column] = _retried(keys[row].tolist(), word, range_, words, threshold)
    with np.errstate(over="ignore"):
        values: npt.NDArray[np.int64] = (high + np.uint64(low % 2**64)).view(np.int64)
    return values


def _products(raw: Array, range_: int) -> tuple[U64, U64]:
    """High and low halves of ``raw * range_``."""
    if raw.dtype == np.uint32:
        product = raw.astype(np.uint64) * np.uint64(range_)
        return product >> _32, product & _LOW32
    a1, a0 = raw >> _32, raw & _LOW32
    b1, b0 = np.uint64(range_ >> 32), np.uint64(range_ & 0xFFFFFFFF)
    middle = a1 * b0 + (a0 * b0 >> _32)
    cross = a0 * b1 + (middle & _LOW32)
    with np.errstate(over="ignore"):
        return a1 * b1 + (middle >> _32) + (cross >> _32), raw * np.uint64(range_)


def _retried(key: list[int], word: int, range_: int, words: int, threshold: int) -> int:
    """The high half of the first product that is not rejected."""
    modulus = 1 << 32 * words
    product = 0
    for attempt in range(RETRY_TAGS):
        tag = (RETRY_TAG + attempt) << 24
        block = _block(
            key[0], word & 0xFFFFFFFF, word >> 32 | tag, key[1] & 0xFFFFFFFF, key[1] >> 32
        )
        candidates = block if words == 1 else (block[0] | block[1] << 32, block[2] | block[3] << 32)
        for candidate in candidates:
            product = candidate * range_
            if product % modulus >= threshold:
                return product // modulus
    return product // modulus
