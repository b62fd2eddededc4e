"""Exact sums in NumPy: a fixed-point number that covers the whole range of float64.

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
F64 = npt.NDArray[np.float64]

_CHUNK = 1 << 18  # float64 counts 2**33 times this without rounding
_LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(2**27 - 1)
_SIGN = np.uint64(2**63)
_SHIFTS: int = sum(2 ** (64 * k + 63) for k in range(LIMBS // 2))


def add(total: I64, values: F64, factors: F64) -> None:
    """Add the products of values and as many factors to an accumulator of int64."""
    for begin in range(0, values.size, _CHUNK):
        part, other = (x[begin : begin + _CHUNK] for x in (values, factors))
        finite = np.isfinite(part) & np.isfinite(other)
        with np.errstate(all="ignore"):
            kinds = part[~finite] * other[~finite]
        total[NAN] += np.isnan(kinds).sum()
        total[POSITIVE_INFINITY] += (kinds == np.inf).sum()
        total[NEGATIVE_INFINITY] += (kinds == -np.inf).sum()
        total[COUNT] += part.size
        _add_products(total, part[finite], other[finite])
        normalize(total)


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


def _add_products(total: I64, values: F64, factors: F64) -> None:
    sign, significand, at = _parts(values)
    other_sign, other, other_at = _parts(factors)
    sign, at = sign * other_sign, at + other_at
    bits = np.uint64(27)
    a, b, c, d = significand >> bits, significand & _HALF, other >> bits, other & _HALF
    for product, more in ((a * c, 54), (a * d + b * c, 27), (b * d, 0)):
        _add_terms(total, sign, product, at + more)


def _parts(values: F64) -> tuple[F64, npt.NDArray[np.uint64], I64]:
    """Return signs, significands and exponents: sign * significand * 2**exponent."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    exponent = (bits >> np.uint64(52)) & np.uint64(2047)
    significand = bits & np.uint64(2**52 - 1)
    significand |= (exponent > 0).astype(np.uint64) << np.uint64(52)
    at = np.maximum(exponent, np.uint64(1)).astype(np.int64) - 1075
    return np.where(np.signbit(values), -1.0, 1.0), significand, at


def _add_terms(total: I64, sign: F64, integers: npt.NDArray[np.uint64], at: I64) -> None:
    """Add sign * integer * 2**at, integers below 2**55."""
    at = at + FRACTION_BITS
    limb, shift = at >> 5, (at & 31).astype(np.uint64)
    low, high = (integers & _LOW) << shift, (integers >> np.uint64(32)) << shift
    middle = (low >> np.uint64(32)) + (high & _LOW)
    for k, digits in enumerate((low & _LOW, middle, high >> np.uint64(32))):
        # in float64, but integers below 2**53 throughout
        sums = np.bincount(limb + k, weights=sign * digits, minlength=LIMBS)
        total[:LIMBS] += sums[:LIMBS].astype(np.int64)
