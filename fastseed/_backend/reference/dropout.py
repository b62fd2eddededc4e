"""Dropout in NumPy: which elements stay, and the keys of layers (``docs/spec/dropout.md``)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import philox
from .philox import U64

EACH = 8
"""Elements of one block of a stream: 16 bits each."""
LEVELS = 1 << 16


def scale(threshold: int) -> float:
    """Return the factor of the elements that stay."""
    return 0.0 if threshold == LEVELS else LEVELS / (LEVELS - threshold)


def is_kept(key: list[int], indices: U64, threshold: int) -> npt.NDArray[np.bool_]:
    """Return which of the elements with these indices in the logical tensor stay."""
    blocks, numbers = indices // np.uint64(EACH), indices % np.uint64(EACH)
    first_of_each = np.append(True, blocks[1:] != blocks[:-1])
    words = philox.words_of_blocks(key, blocks[first_of_each])
    found = words.astype("<u4").view("<u2")[np.cumsum(first_of_each) - 1, numbers]
    kept: npt.NDArray[np.bool_] = found >= threshold
    return kept
