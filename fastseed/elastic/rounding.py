"""Quotients and square roots of integers, rounded once: to nearest, ties to even (IEEE 754)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch


class _Format(NamedTuple):
    digits: int  # of a significand
    lowest: int  # exponent of the least positive number
    limit: int  # exponent of the first power of two that is too large


_FORMATS = {torch.float32: _Format(24, -149, 128), torch.float64: _Format(53, -1074, 1024)}
_ROOT_BITS = 2 * (53 + 2)  # whose root has two bits more than a float64


def nearest(numerator: int, denominator: int, exponent: int, dtype: torch.dtype) -> float:
    """Return numerator / denominator * 2**exponent, rounded to float32 or float64.

    The denominator is positive. A numerator of 0 gives +0; what is too large gives an infinity.
    """
    digits, lowest, limit = _FORMATS[dtype]
    size = abs(numerator).bit_length() - denominator.bit_length() + exponent
    # the quotient is in [2**(size - 1), 2**(size + 1)): its last digit has one of two places
    for place in (max(size - digits, lowest), max(size - digits + 1, lowest)):
        shift = place - exponent
        scaled = denominator << max(shift, 0)
        whole, rest = divmod(abs(numerator) << max(-shift, 0), scaled)
        if whole.bit_length() <= digits:
            break
    whole += 2 * rest > scaled or (2 * rest == scaled and whole % 2 == 1)
    found = math.inf if whole.bit_length() + place > limit else math.ldexp(whole, place)
    return -found if numerator < 0 else found


def square_root(number: int, exponent: int, dtype: torch.dtype) -> float:
    """Return the root of number * 2**exponent, rounded to float32 or float64; exponent is even."""
    drop = (number.bit_length() - _ROOT_BITS) // 2 * 2
    kept = number >> drop if drop > 0 else number << -drop
    root = math.isqrt(kept)
    # one more bit says whether the root is greater than its digits
    inexact = root * root != kept or (drop > 0 and kept << drop != number)
    return nearest(2 * root + inexact, 1, (exponent + drop) // 2 - 1, dtype)
