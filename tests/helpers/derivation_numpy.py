"""The derivation over arrays of any coordinate, with any number of rounds.

The library vectorises over indices alone; statistics need arrays of ranks, names and scopes too,
and a generator that is known to be too weak. ``test_derivation_numpy`` ties it to the library.
"""

import hashlib
from typing import NamedTuple

import numpy as np

ROUNDS = 10
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
SCOPE_DOMAIN, STREAM_DOMAIN, NARROW_DOMAIN = (np.uint64(d << 24) for d in (1, 2, 6))

# Bits of each coordinate; together they are everything that a key depends on.
BITS = {
    "master": 64, "task": 24, "epoch": 32, "step": 64, "name_lo": 64, "name_hi": 64, "rank": 24,
    "worker": 32, "index": 64,
}  # fmt: skip
SCOPE_COORDINATES = ("master", "task", "epoch", "step")
NAME_COORDINATES = ("name_lo", "name_hi")


class Level(NamedTuple):
    """Arrays (or one value) of keys and tweaks: of scopes, or of names in scopes."""

    key: np.ndarray
    tweak: np.ndarray


def philox(key, w0, w1, w2, w3, rounds: int = ROUNDS) -> tuple[np.ndarray, np.ndarray]:
    """The low and the high 64 bits of Philox4x32 of uint64 arrays that broadcast."""
    key, w0, w1, w2, w3 = (np.asarray(v, np.uint64) for v in (key, w0, w1, w2, w3))
    k0, k1 = key & LOW, key >> HALF
    for _ in range(rounds):
        p0, p1 = np.uint64(0xD2511F53) * w0, np.uint64(0xCD9E8D57) * w2
        w0, w1 = (p1 >> HALF) ^ w1 ^ k0, p1 & LOW
        w2, w3 = (p0 >> HALF) ^ w3 ^ k1, p0 & LOW
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & LOW, (k1 + np.uint64(0xBB67AE85)) & LOW
    return w0 | w1 << HALF, w2 | w3 << HALF


def scope_keys(master, task, epoch, step, rounds: int = ROUNDS) -> Level:
    """Level 1 of arrays of coordinates."""
    step, task = np.asarray(step, np.uint64), np.asarray(task, np.uint64)
    return Level(*philox(master, step & LOW, step >> HALF, epoch, task | SCOPE_DOMAIN, rounds))


def name_keys(scope: Level, lo, hi, rounds: int = ROUNDS) -> Level:
    """Level 2, of arrays of the two halves of names."""
    x, hi = np.asarray(lo, np.uint64) ^ scope.tweak, np.asarray(hi, np.uint64)
    return Level(*philox(scope.key, x & LOW, x >> HALF, hi & LOW, hi >> HALF, rounds))


def stream_keys(
    name: Level, rank, worker, index, rounds: int = ROUNDS, domain=STREAM_DOMAIN
) -> np.ndarray:
    """Level 3: keys, ``(..., 2)`` uint64 ``[lo, hi]``, of arrays of ranks, workers and indices."""
    x, rank = np.asarray(index, np.uint64) ^ name.tweak, np.asarray(rank, np.uint64)
    lo_hi = philox(name.key, x & LOW, x >> HALF, rank | domain, worker, rounds)
    return np.stack(np.broadcast_arrays(*lo_hi), axis=-1)


def coordinate_name(at: dict, rounds: int = ROUNDS) -> Level:
    """Level 2 of named coordinates."""
    scope = scope_keys(*(at[name] for name in SCOPE_COORDINATES), rounds)
    return name_keys(scope, *(at[name] for name in NAME_COORDINATES), rounds)


def coordinate_keys(at: dict, rounds: int = ROUNDS, name: Level | None = None) -> np.ndarray:
    """The keys of named coordinates."""
    name = coordinate_name(at, rounds) if name is None else name
    return stream_keys(name, at["rank"], at["worker"], at["index"], rounds)


def arbitrary(label: str, n: int, below: int = 2**64) -> np.ndarray:
    """n arbitrary but fixed numbers, from the derivation itself under a name of the test's own."""
    digest = hashlib.sha256(label.encode()).digest()
    lo, hi = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))
    name = name_keys(scope_keys(0x7E57, 0, 0, 0), lo, hi)
    words = stream_keys(name, 0, 0, np.arange(n, dtype=np.uint64))[:, 0]
    return words if below == 2**64 else words % np.uint64(below)
