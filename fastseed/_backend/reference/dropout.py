"""Dropout in NumPy: which elements stay, and the keys of layers (``docs/dropout.md``)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import philox
from .draws import words32

EACH = 8
"""Elements of one block of a stream: 16 bits each."""
LEVELS = 1 << 16


def scale(threshold: int) -> float:
    """Return the factor of the elements that stay."""
    return 0.0 if threshold == LEVELS else LEVELS / (LEVELS - threshold)


def is_kept(key: list[int], first: int, count: int, threshold: int) -> npt.NDArray[np.bool_]:
    """Return which of the elements first, ..., first + count - 1 of a logical tensor stay."""
    block, begin = divmod(first, EACH)
    blocks = -(-(begin + count) // EACH)
    words = words32(np.array([key], np.uint64), np.zeros(1, np.uint64), block, blocks)
    numbers = words.astype("<u4").view("<u2").reshape(-1)
    kept: npt.NDArray[np.bool_] = numbers[begin : begin + count] >= threshold
    return kept


def layer_key(scope: philox.Scope, name: philox.Name, label: int) -> int:
    """Return the key of a layer at a scope."""
    return philox.stream_key(philox.name_key(scope, name), philox.SHARED_RANK, 0, label)
