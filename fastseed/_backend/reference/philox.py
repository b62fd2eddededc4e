"""The derivation, version 1, in plain NumPy: the oracle of the tests and the fallback.

``docs/spec/derivation.md`` is the specification. Bulk results are NumPy arrays; ``.scalar`` has one
key in Python's integers.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .scalar import (
    DOMAIN_SAMPLE,
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

_CHUNK = 1 << 16  # blocks computed at a time: the temporaries stay in the cache


def blocks(
    key: Any, w0: Uint64s, w1: Uint64s, w2: Uint64s, w3: Uint64s, rounds: int = ROUNDS
) -> tuple[Uint64s, ...]:
    """``block`` over arrays of uint64; each word, and the key, may be one of them or a scalar."""
    low, shift = np.uint64(LOW32), np.uint64(32)
    m0, m1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
    k0, k1 = key & LOW32, key >> 32
    for _ in range(rounds):
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
    w2, w3 = np.uint64(rank | domain << 24), np.uint64(worker)
    for at in range(0, n, _CHUNK):
        part = out[at : at + _CHUNK]
        with np.errstate(over="ignore"):
            indices = np.arange(len(part), dtype=np.uint64) + np.uint64((start + at) % 2**64)
        part[:, 0], part[:, 1] = _stream_keys(name, indices, w2, w3)
    return out


def _stream_keys(name: NameKey, indices: U64, w2: Uint64s, w3: Uint64s) -> tuple[U64, U64]:
    """Low and high halves of the keys of some indices."""
    shift = np.uint64(32)
    x = indices ^ np.uint64(name[1])
    r = blocks(name[0], x & np.uint64(LOW32), x >> shift, w2, w3)
    return r[0] | r[1] << shift, r[2] | r[3] << shift


def sample_keys(name: NameKey, indices: Array, occurrences: Array) -> U64:
    """Keys of samples, by index and occurrence: ``(n, 2)``, ``[lo, hi]``."""
    w2, w3 = np.uint64(DOMAIN_SAMPLE << 24), occurrences.astype(np.uint64)
    return np.stack(_stream_keys(name, indices.astype(np.uint64), w2, w3), axis=-1)


def derive_seed_grid(name: NameKey, rank_fields: U64, workers: U64, indices: U64) -> U64:
    """Seeds of n indices (rows) with (1 or n, columns) workers and (1 or n,) rank fields."""
    n, columns = len(indices), workers.shape[1]
    out = np.empty((n, columns), np.uint64)
    w2 = np.broadcast_to((rank_fields | np.uint64(DOMAIN_STREAM << 24))[:, None], (n, 1))
    workers = np.broadcast_to(workers, (n, columns))
    rows = max(1, _CHUNK // max(1, columns))
    for at in range(0, n, rows):
        part = slice(at, at + rows)
        out[part], _ = _stream_keys(name, indices[part, None], w2[part], workers[part])
    return out
