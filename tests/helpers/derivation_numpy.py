"""The derivation over arrays of any coordinate, with any number of rounds.

The library vectorises over indices alone; statistics need arrays of ranks, names and scopes too,
and a generator that is known to be too weak. ``test_derivation_numpy`` ties it to the library.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

ROUNDS = 10
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
SCOPE_DOMAIN, STREAM_DOMAIN = np.uint64(1 << 24), np.uint64(2 << 24)

# Bits of each coordinate; together they are everything that a key depends on.
BITS = {"master": 64, "task": 24, "epoch": 32, "step": 64, "name": 32, "rank": 24, "index": 64}
SCOPE_COORDINATES = ("master", "task", "epoch", "step")


class Scope(NamedTuple):
    """Arrays (or one value) of keys and tweaks."""

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


def scope_keys(master, task, epoch, step, rounds: int = ROUNDS) -> Scope:
    """Scopes of arrays of coordinates."""
    step, task = np.asarray(step, np.uint64), np.asarray(task, np.uint64)
    return Scope(*philox(master, step & LOW, step >> HALF, epoch, task | SCOPE_DOMAIN, rounds))


def stream_keys(scope: Scope, name, rank, index, rounds: int = ROUNDS) -> np.ndarray:
    """Keys, ``(..., 2)`` uint64 ``[lo, hi]``, of arrays of name ids, ranks and indices."""
    x, rank = np.asarray(index, np.uint64) ^ scope.tweak, np.asarray(rank, np.uint64)
    lo_hi = philox(scope.key, x & LOW, x >> HALF, name, rank | STREAM_DOMAIN, rounds)
    return np.stack(np.broadcast_arrays(*lo_hi), axis=-1)


def coordinate_scope(at: dict, rounds: int = ROUNDS) -> Scope:
    """The scopes of named coordinates."""
    return scope_keys(*(at[name] for name in SCOPE_COORDINATES), rounds)


def coordinate_keys(at: dict, rounds: int = ROUNDS, scope: Scope | None = None) -> np.ndarray:
    """The keys of named coordinates."""
    scope = coordinate_scope(at, rounds) if scope is None else scope
    return stream_keys(scope, at["name"], at["rank"], at["index"], rounds)


def arbitrary(label: str, n: int, below: int = 2**64) -> np.ndarray:
    """n arbitrary but fixed numbers, from the derivation itself under a name of the test's own."""
    name = int.from_bytes(hashlib.sha256(label.encode()).digest()[:4], "little")
    scope = scope_keys(0x7E57, 0, 0, 0)
    words = stream_keys(scope, name, 0, np.arange(n, dtype=np.uint64))[:, 0]
    return words if below == 2**64 else words % np.uint64(below)
