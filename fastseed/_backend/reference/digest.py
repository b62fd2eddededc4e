"""Digests of bytes in NumPy: the reference of the native loops, and the fallback.

See docs/spec/digests.md. All numbers are little-endian; arrays hold uint64 unless stated otherwise.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

ROUNDS = 7
GROUP = 16
MODULUS = 1 << 128

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_CHUNK = 1 << 16  # groups at a time: some megabytes


def digest_groups(key: int, numbers: U64, words: npt.NDArray[np.uint32]) -> int:
    """Return the sum modulo 2**128 of the blocks of groups: numbers (n,), words (n, 4)."""
    keys = numbers + np.uint64(key)
    k0, k1 = keys & _LOW, keys >> _HALF
    c0, c1, c2, c3 = (words[:, i].astype(np.uint64) for i in range(4))
    for r in range(ROUNDS):
        p0, p1 = _M0 * c0, _M1 * c2
        a = (k0 + np.uint64(r * _W0 & 0xFFFFFFFF)) & _LOW
        b = (k1 + np.uint64(r * _W1 & 0xFFFFFFFF)) & _LOW
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ a, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ b, p0 & _LOW
    sums = (int(c.sum(dtype=np.uint64)) << 32 * i for i, c in enumerate((c0, c1, c2, c3)))
    return sum(sums) % MODULUS


def digest_rows(key: int, rows: npt.NDArray[np.uint8], first: int, step: int) -> int:
    """Return the sum over rows of bytes, (rows, bytes); row i begins at group first + i * step."""
    n, length = rows.shape
    total = 0
    for left in range(0, length, _CHUNK * GROUP):
        columns = rows[:, left : left + _CHUNK * GROUP]
        per_row = -(-columns.shape[1] // GROUP)
        side_by_side = max(1, _CHUNK // per_row)
        column = np.arange(per_row, dtype=np.uint64) + np.uint64((first + left // GROUP) % 2**64)
        for top in range(0, n, side_by_side):
            part = columns[top : top + side_by_side]
            padded = np.zeros((len(part), per_row * GROUP), np.uint8)
            padded[:, : part.shape[1]] = part
            row = np.arange(top, top + len(part), dtype=np.uint64) * np.uint64(step)
            numbers = (row[:, None] + column).ravel()
            total += digest_groups(key, numbers, padded.view("<u4").reshape(-1, 4))
    return total % MODULUS
