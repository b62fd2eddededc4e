"""The derivation of one key, version 1, in plain Python; it imports the standard library alone.

``docs/spec/derivation.md`` is the specification. Source of the generator: Salmon, Moraes, Dror,
Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11 (Philox4x32-10).
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

ScopeKey: TypeAlias = tuple[int, int]
"""Level 1: the 64-bit key and the 64-bit tweak of a (master seed, task, epoch, step)."""

Name: TypeAlias = tuple[int, int]
"""The first 128 bits of SHA-256 of a name in UTF-8, little-endian: low and high 64 bits."""

NameKey: TypeAlias = tuple[int, int]
"""Level 2: the 64-bit key and the 64-bit tweak of a name in a scope."""

DERIVATION_VERSION = 1

DOMAIN_SCOPE, DOMAIN_STREAM, DOMAIN_SAMPLE = 1, 2, 3
DOMAIN_STATE, DOMAIN_SHUFFLE, DOMAIN_NARROW = 4, 5, 6
SHARED_RANK = 2**24 - 1

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
LOW32 = 0xFFFFFFFF


def block(key: int, w0: int, w1: int, w2: int, w3: int) -> tuple[int, int, int, int]:
    """Philox4x32-10 of one counter under a 64-bit ``key``: four 32-bit words."""
    k0, k1 = key & LOW32, key >> 32
    for _ in range(ROUNDS):
        p0, p1 = MULTIPLIERS[0] * w0, MULTIPLIERS[1] * w2
        w0, w1, w2, w3 = (p1 >> 32) ^ w1 ^ k0, p1 & LOW32, (p0 >> 32) ^ w3 ^ k1, p0 & LOW32
        k0, k1 = (k0 + WEYL[0]) & LOW32, (k1 + WEYL[1]) & LOW32
    return w0, w1, w2, w3


def name_words(name: str) -> Name:
    """Return the words of a name that level 2 takes: ``Name``."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


def scope_key(master: int, task: int, epoch: int, step: int) -> ScopeKey:
    """(key, tweak) of a point in time of the job with this master seed."""
    r = block(master, step & LOW32, step >> 32, epoch, task | DOMAIN_SCOPE << 24)
    return r[0] | r[1] << 32, r[2] | r[3] << 32


def name_key(scope: ScopeKey, name: Name) -> NameKey:
    """(key, tweak) of a name at that point."""
    x = name[0] ^ scope[1]
    r = block(scope[0], x & LOW32, x >> 32, name[1] & LOW32, name[1] >> 32)
    return r[0] | r[1] << 32, r[2] | r[3] << 32


def stream_key(
    name: NameKey, rank: int, worker: int, index: int, domain: int = DOMAIN_STREAM
) -> int:
    """The 128-bit key of one stream: low 64 bits ``lo``, high 64 bits ``hi``."""
    x = index ^ name[1]
    r = block(name[0], x & LOW32, x >> 32, rank | domain << 24, worker)
    return r[0] | r[1] << 32 | r[2] << 64 | r[3] << 96


def signed(value: int) -> int:
    """Return the signed integer with the same 64 bits, as operators take them."""
    return value - 2**64 if value >= 2**63 else value
