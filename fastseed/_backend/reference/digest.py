"""Digests of bytes in NumPy (``docs/spec/digests.md``): the oracle and the fallback."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import philox
from .philox import U64

ROUNDS = 7
GROUP = 16
MODULUS = 1 << 128

_CHUNK = 1 << 16  # groups at a time: some megabytes


def digest_groups(key: int, numbers: U64, words: npt.NDArray[np.uint32]) -> int:
    """Return the sum modulo 2**128 of the blocks of groups: numbers (n,), words (n, 4)."""
    w0, w1, w2, w3 = words.astype(np.uint64).T
    found = philox.blocks(numbers + np.uint64(key), w0, w1, w2, w3, ROUNDS)
    return sum(int(word.sum()) << 32 * i for i, word in enumerate(found)) % MODULUS


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
