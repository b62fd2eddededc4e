"""The accumulator of exact sums: a fixed-point number that covers the whole range of float64.

``docs/spec/exact-sums.md`` defines the accumulator, which no order of the values changes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LIMBS = 134
"""Limb i is worth 2**(32 i - 2176): squares of float64, and 2**63 of them, fit."""
FRACTION_BITS = 2176
NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY, COUNT = range(LIMBS, LIMBS + 4)
"""Behind the limbs: how many values were not finite, and how many there were in all."""
SIZE = LIMBS + 4

I64 = npt.NDArray[np.int64]

_SIGN = np.uint64(2**63)
_SHIFTS: int = sum(2 ** (64 * k + 63) for k in range(LIMBS // 2))


def normalize(total: I64) -> None:
    """Carry, so that all limbs but the last one are in [0, 2**32). The number stays the same."""
    number = to_integer(total)
    digits = number.to_bytes(4 * LIMBS + 4, "little", signed=True)
    total[: LIMBS - 1] = np.frombuffer(digits, "<u4", LIMBS - 1)
    total[LIMBS - 1] = int.from_bytes(digits[4 * LIMBS - 4 :], "little", signed=True)


def to_integer(total: I64) -> int:
    """Return the number times 2**FRACTION_BITS; limbs may be any integers of 64 bits."""
    return _signed_digits(total[0:LIMBS:2]) + (_signed_digits(total[1:LIMBS:2]) << 32)


def _signed_digits(digits: I64) -> int:
    """Return the number of these digits, each worth 2**64 times the one before."""
    shifted = digits.astype("<i8").view("<u8") ^ _SIGN  # by 2**63 each, so that none is negative
    found = int.from_bytes(shifted.tobytes(), "little")
    return found - _SHIFTS
