"""The derivation, version 1, in plain NumPy: the oracle of the tests and the fallback.

Everything here is a pure function of its arguments; ``docs/spec/derivation.md`` is the
specification. Scalars are Python ints in and out, bulk results are NumPy arrays. Arguments are
trusted: callers have checked them (see ``fastseed.derivation.streams``).

Source of the generator: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC'11 (Philox4x32-10).
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Scope: TypeAlias = tuple[int, int]
"""Level 1: the 64-bit key and the 64-bit tweak of a (master seed, task, epoch, step)."""

Name: TypeAlias = tuple[int, int]
"""The first 128 bits of SHA-256 of a name in UTF-8, little-endian: low and high 64 bits."""

NameKey: TypeAlias = tuple[int, int]
"""Level 2: the 64-bit key and the 64-bit tweak of a name in a scope."""

Array: TypeAlias = npt.NDArray[Any]
"""An array of a dtype that an argument decides."""
Words: TypeAlias = Any
"""An array of uint64, or one number of it, which NumPy's types do not join."""

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]

DERIVATION_VERSION = 1

DOMAIN_SCOPE, DOMAIN_STREAM, DOMAIN_SAMPLE = 1, 2, 3
DOMAIN_STATE, DOMAIN_SHUFFLE, DOMAIN_NARROW = 4, 5, 6
SHARED_RANK = 2**24 - 1
MT_WORDS = 624

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_LOW32 = 0xFFFFFFFF
_CHUNK = 1 << 16  # blocks computed at a time: the temporaries stay in the cache


def block(key: int, w0: int, w1: int, w2: int, w3: int) -> tuple[int, int, int, int]:
    """Philox4x32-10 of one counter under a 64-bit ``key``: four 32-bit words."""
    k0, k1 = key & _LOW32, key >> 32
    for _ in range(_ROUNDS):
        p0, p1 = _MULTIPLIERS[0] * w0, _MULTIPLIERS[1] * w2
        w0, w1, w2, w3 = (p1 >> 32) ^ w1 ^ k0, p1 & _LOW32, (p0 >> 32) ^ w3 ^ k1, p0 & _LOW32
        k0, k1 = (k0 + _WEYL[0]) & _LOW32, (k1 + _WEYL[1]) & _LOW32
    return w0, w1, w2, w3


def _blocks(key: int, w0: Words, w1: Words, w2: Words, w3: Words) -> tuple[Words, ...]:
    """``block`` over arrays: each word an array, or a scalar, of uint64 below 2**32."""
    low, shift = np.uint64(_LOW32), np.uint64(32)
    m0, m1 = np.uint64(_MULTIPLIERS[0]), np.uint64(_MULTIPLIERS[1])
    k0, k1 = key & _LOW32, key >> 32
    for _ in range(_ROUNDS):
        p0, p1 = m0 * w0, m1 * w2
        w0, w1 = (p1 >> shift) ^ w1 ^ np.uint64(k0), p1 & low
        w2, w3 = (p0 >> shift) ^ w3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + _WEYL[0]) & _LOW32, (k1 + _WEYL[1]) & _LOW32
    return w0, w1, w2, w3


def words_of_blocks(key: list[int], blocks: U64) -> U32:
    """Return the words of the blocks with these numbers of a stream, (n, 4)."""
    lo, hi = key
    low, shift = np.uint64(_LOW32), np.uint64(32)
    found = _blocks(lo, blocks & low, blocks >> shift, np.uint64(hi & _LOW32), np.uint64(hi >> 32))
    return np.stack(found, axis=-1).astype(np.uint32)


def signed(value: int) -> int:
    """Return the signed integer with the same 64 bits, as operators take them."""
    return value - 2**64 if value >= 2**63 else value


def name_words(name: str) -> Name:
    """Return the words of a name that level 2 takes: ``Name``."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


def scope_key(master: int, task: int, epoch: int, step: int) -> Scope:
    """(key, tweak) of a point in time of the job with this master seed."""
    r = block(master, step & _LOW32, step >> 32, epoch, task | DOMAIN_SCOPE << 24)
    return r[0] | r[1] << 32, r[2] | r[3] << 32


def name_key(scope: Scope, name: Name) -> NameKey:
    """(key, tweak) of a name at that point."""
    x = name[0] ^ scope[1]
    r = block(scope[0], x & _LOW32, x >> 32, name[1] & _LOW32, name[1] >> 32)
    return r[0] | r[1] << 32, r[2] | r[3] << 32


def stream_key(
    name: NameKey, rank: int, worker: int, index: int, domain: int = DOMAIN_STREAM
) -> int:
    """The 128-bit key of one stream: low 64 bits ``lo``, high 64 bits ``hi``."""
    x = index ^ name[1]
    r = block(name[0], x & _LOW32, x >> 32, rank | domain << 24, worker)
    return r[0] | r[1] << 32 | r[2] << 64 | r[3] << 96


def derive_keys(
    name: NameKey, rank: int, worker: int, start: int, n: int, domain: int = DOMAIN_STREAM
) -> U64:
    """Keys of the indices ``start`` to ``start + n - 1`` (mod 2**64): ``(n, 2)``, ``[lo, hi]``."""
    out = np.empty((n, 2), np.uint64)
    shift, low = np.uint64(32), np.uint64(_LOW32)
    w2, w3 = np.uint64(rank | domain << 24), np.uint64(worker)
    for at in range(0, n, _CHUNK):
        count = min(_CHUNK, n - at)
        first = np.uint64((start + at) % 2**64)
        with np.errstate(over="ignore"):
            x = (np.arange(count, dtype=np.uint64) + first) ^ np.uint64(name[1])
            r = _blocks(name[0], x & low, x >> shift, w2, w3)
        out[at : at + count, 0] = r[0] | r[1] << shift
        out[at : at + count, 1] = r[2] | r[3] << shift
    return out


def sample_keys(name: NameKey, indices: Array, occurrences: Array) -> U64:
    """Keys of samples, by index and occurrence: ``(n, 2)``, ``[lo, hi]``."""
    low, shift = np.uint64(_LOW32), np.uint64(32)
    x = indices.astype(np.uint64) ^ np.uint64(name[1])
    w2, w3 = np.uint64(DOMAIN_SAMPLE << 24), occurrences.astype(np.uint64)
    r = _blocks(name[0], x & low, x >> shift, w2, w3)
    return np.stack((r[0] | r[1] << shift, r[2] | r[3] << shift), axis=-1)


def derive_seeds(
    name: NameKey, rank: int, worker: int, start: int, n: int, domain: int = DOMAIN_STREAM
) -> U64:
    """The low halves of ``derive_keys``: ``(n,)``."""
    return np.ascontiguousarray(derive_keys(name, rank, worker, start, n, domain)[:, 0])


def derive_seed_grid(name: NameKey, rank: int, workers: U64, indices: U64) -> U64:
    """Seeds of each index (rows) with each worker (columns): ``(len(indices), len(workers))``."""
    out = np.empty((len(indices), len(workers)), np.uint64)
    shift, low = np.uint64(32), np.uint64(_LOW32)
    w2, words = np.uint64(rank | DOMAIN_STREAM << 24), indices ^ np.uint64(name[1])
    rows = max(1, _CHUNK // max(1, len(workers)))
    for at in range(0, len(indices), rows):
        x = words[at : at + rows, None]
        for first in range(0, len(workers), _CHUNK):
            w3 = workers[first : first + _CHUNK]
            r = _blocks(name[0], x & low, x >> shift, w2, w3)
            out[at : at + rows, first : first + _CHUNK] = r[0] | r[1] << shift
    return out


def mt19937_state(key: int) -> U32:
    """The 624 words of an MT19937 whose state is expanded from all 128 bits of ``key``."""
    hi = key >> 64
    j = np.arange(MT_WORDS // 4, dtype=np.uint64)
    r = _blocks(
        key & (2**64 - 1),
        j,
        np.uint64(DOMAIN_STATE << 24),
        np.uint64(hi & _LOW32),
        np.uint64(hi >> 32),
    )
    words = np.stack(np.broadcast_arrays(*r), axis=1).astype(np.uint32).reshape(MT_WORDS)
    words[0] |= np.uint32(0x80000000)
    return words
