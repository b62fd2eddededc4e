"""The derivation, version 1, in plain NumPy: the oracle of the tests and the fallback.

Everything here is a pure function of its arguments; ``docs/spec/derivation.md`` is the
specification. Scalars are Python ints in and out (see ``.scalar``), bulk results are NumPy arrays.
Arguments are trusted: callers have checked them (see ``fastseed.derivation.streams``).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .scalar import (
    DOMAIN_SAMPLE,
    DOMAIN_STATE,
    DOMAIN_STREAM,
    LOW32,
    MULTIPLIERS,
    ROUNDS,
    WEYL,
    NameKey,
)

Array: TypeAlias = npt.NDArray[Any]
"""An array of a dtype that an argument decides."""
Uint64s: TypeAlias = Any
"""An array of uint64, or one number of it, which NumPy's types do not join."""

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]

MT_WORDS = 624
_CHUNK = 1 << 16  # blocks computed at a time: the temporaries stay in the cache


def blocks(key: int, w0: Uint64s, w1: Uint64s, w2: Uint64s, w3: Uint64s) -> tuple[Uint64s, ...]:
    """``block`` over arrays: each word an array, or a scalar, of uint64 below 2**32."""
    low, shift = np.uint64(LOW32), np.uint64(32)
    m0, m1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
    k0, k1 = key & LOW32, key >> 32
    for _ in range(ROUNDS):
        p0, p1 = m0 * w0, m1 * w2
        w0, w1 = (p1 >> shift) ^ w1 ^ np.uint64(k0), p1 & low
        w2, w3 = (p0 >> shift) ^ w3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + WEYL[0]) & LOW32, (k1 + WEYL[1]) & LOW32
    return w0, w1, w2, w3


def words_of_blocks(key: list[int], numbers: U64) -> U32:
    """Return the words of the blocks with these numbers of a stream, (n, 4)."""
    lo, hi = key
    low, shift = np.uint64(LOW32), np.uint64(32)
    found = blocks(lo, numbers & low, numbers >> shift, np.uint64(hi & LOW32), np.uint64(hi >> 32))
    return np.stack(found, axis=-1).astype(np.uint32)


def derive_keys(
    name: NameKey, rank: int, worker: int, start: int, n: int, domain: int = DOMAIN_STREAM
) -> U64:
    """Keys of the indices ``start`` to ``start + n - 1`` (mod 2**64): ``(n, 2)``, ``[lo, hi]``."""
    out = np.empty((n, 2), np.uint64)
    shift, low = np.uint64(32), np.uint64(LOW32)
    w2, w3 = np.uint64(rank | domain << 24), np.uint64(worker)
    for at in range(0, n, _CHUNK):
        count = min(_CHUNK, n - at)
        first = np.uint64((start + at) % 2**64)
        with np.errstate(over="ignore"):
            x = (np.arange(count, dtype=np.uint64) + first) ^ np.uint64(name[1])
            r = blocks(name[0], x & low, x >> shift, w2, w3)
        out[at : at + count, 0] = r[0] | r[1] << shift
        out[at : at + count, 1] = r[2] | r[3] << shift
    return out


def sample_keys(name: NameKey, indices: Array, occurrences: Array) -> U64:
    """Keys of samples, by index and occurrence: ``(n, 2)``, ``[lo, hi]``."""
    low, shift = np.uint64(LOW32), np.uint64(32)
    x = indices.astype(np.uint64) ^ np.uint64(name[1])
    w2, w3 = np.uint64(DOMAIN_SAMPLE << 24), occurrences.astype(np.uint64)
    r = blocks(name[0], x & low, x >> shift, w2, w3)
    return np.stack((r[0] | r[1] << shift, r[2] | r[3] << shift), axis=-1)


def derive_seed_grid(name: NameKey, rank_fields: U64, workers: U64, indices: U64) -> U64:
    """Seeds of each index (rows) with workers (columns), and with rank fields.

    For n indices, ``workers`` are (1 or n, columns), ``rank_fields`` (1 or n,), and the seeds
    (n, columns).
    """
    n, columns = len(indices), workers.shape[1]
    out = np.empty((n, columns), np.uint64)
    shift, low = np.uint64(32), np.uint64(LOW32)
    words = (indices ^ np.uint64(name[1]))[:, None]
    w2 = np.broadcast_to((rank_fields | np.uint64(DOMAIN_STREAM << 24))[:, None], (n, 1))
    workers = np.broadcast_to(workers, (n, columns))
    rows = max(1, _CHUNK // max(1, columns))
    for at in range(0, n, rows):
        part = slice(at, at + rows)
        for first in range(0, columns, _CHUNK):
            w3 = workers[part, first : first + _CHUNK]
            r = blocks(name[0], words[part] & low, words[part] >> shift, w2[part], w3)
            out[at : at + rows, first : first + _CHUNK] = r[0] | r[1] << shift
    return out


def mt19937_state(key: int) -> U32:
    """The 624 words of an MT19937 whose state is expanded from all 128 bits of ``key``."""
    hi = key >> 64
    j = np.arange(MT_WORDS // 4, dtype=np.uint64)
    r = blocks(
        key & (2**64 - 1),
        j,
        np.uint64(DOMAIN_STATE << 24),
        np.uint64(hi & LOW32),
        np.uint64(hi >> 32),
    )
    words = np.stack(np.broadcast_arrays(*r), axis=1).astype(np.uint32).reshape(MT_WORDS)
    words[0] |= np.uint32(0x80000000)
    return words
