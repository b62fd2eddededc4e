"""Which seed Python's string hashes were started with: asked of the hashes, not of a variable.

``PYTHONHASHSEED`` is read before the first line of a script runs, so that ``os.environ`` says
nothing certain about it: it may have been changed since, or ignored (``python -E``, ``-I``). The
hash of a string is a function of the seed, though. CPython expands the seed by a linear
congruential generator into the key of a SipHash (PEP 456; ``Python/bootstrap_hash.c``,
``Python/pyhash.c``; the function is Aumasson and Bernstein's, INDOCRYPT 2012).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

MAX_SEED = 2**32 - 1
VARIABLE = "PYTHONHASHSEED"

_MASK = 2**64 - 1
_PROBE = b"fastseed probes hash"  # longer than any cutoff below which another function is used
_ROUNDS = {"siphash13": (1, 3), "siphash24": (2, 4)}


def parse(value: str | None) -> int | None:
    """The seed that a value of the variable fixes; None where it fixes none (or is no value)."""
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 20:
        return None
    seed = int(value)
    return seed if seed <= MAX_SEED else None


def in_use(seed: int) -> bool | None:
    """Whether this process hashes strings with ``seed``; None where that cannot be told."""
    info = sys.hash_info
    rounds = _ROUNDS.get(info.algorithm)
    if sys.implementation.name != "cpython" or rounds is None or info.hash_bits != 64:
        return None
    key = _expand(seed)
    k0, k1 = (int.from_bytes(key[i : i + 8], "little") for i in (0, 8))
    found = _siphash(k0, k1, _PROBE, *rounds)
    return hash(_PROBE) & _MASK == (found if found != _MASK else _MASK - 1)  # -1 is an error


def found() -> tuple[str | None, int | None]:
    """What the variable says now, and the seed that is in use; None: random, or unknown."""
    now = os.environ.get(VARIABLE)
    for value in (now, _at_start(), "0"):
        seed = parse(value)
        if seed is None:
            continue
        verdict = in_use(seed)
        if verdict or (verdict is None and value is now and not sys.flags.ignore_environment):
            return now, seed
    return now, None


def _at_start() -> str | None:
    """The variable as this process was started with it, where the system tells."""
    try:
        start = Path("/proc/self/environ").read_bytes()
    except OSError:
        return None
    for entry in start.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == VARIABLE.encode():
            return value.decode("ascii", "replace")
    return None


def _expand(seed: int) -> bytes:
    if seed == 0:  # no randomisation
        return bytes(16)
    key, x = bytearray(), seed
    for _ in range(16):
        x = (x * 214013 + 2531011) & 0xFFFFFFFF
        key.append(x >> 16 & 0xFF)
    return bytes(key)


def _rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & _MASK


def _mix(v: list[int], rounds: int) -> None:
    a, b, c, d = v
    for _ in range(rounds):
        a, c = (a + b) & _MASK, (c + d) & _MASK
        b, d = _rotate(b, 13) ^ a, _rotate(d, 16) ^ c
        a, c = (_rotate(a, 32) + d) & _MASK, (c + b) & _MASK
        b, d = _rotate(b, 17) ^ c, _rotate(d, 21) ^ a
        c = _rotate(c, 32)
    v[:] = a, b, c, d


def _siphash(k0: int, k1: int, data: bytes, compress: int, finish: int) -> int:
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]
    tail = len(data) % 8
    padded = data[: len(data) - tail] + data[len(data) - tail :].ljust(7, b"\0")
    padded += bytes([len(data) & 0xFF])
    for i in range(0, len(padded), 8):
        word = int.from_bytes(padded[i : i + 8], "little")
        v[3] ^= word
        _mix(v, compress)
        v[0] ^= word
    v[2] ^= 0xFF
    _mix(v, finish)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
