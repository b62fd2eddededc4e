"""Distributions: the checked parameters of an operator, prepared from the arguments of a function.

Everything is plain Python on plain numbers, so that ``torch.compile`` traces it into constants.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import NamedTuple

import numpy as np
import torch

from .._backend.ops.draws import REALS
from .._backend.private_torch import answer_at_trace
from .._backend.reference.scalar import signed
from .._utils.validation import type_error, value_error

MAX_WORDS = 2**56  # of one stream: the end of the range of positions

# For each dtype: bits of precision, the exponent of its smallest number, the largest number.
FORMATS = {
    torch.float16: (11, -24, 65504.0),
    torch.bfloat16: (8, -133, math.ldexp(255.0, 120)),
    torch.float32: (24, -149, math.ldexp(2.0**24 - 1, 104)),
    torch.float64: (53, -1074, math.ldexp(2.0**53 - 1, 971)),
}
_WORDS = {dtype: 2 if dtype == torch.float64 else 1 for dtype in FORMATS}
INTEGERS = {torch.uint8: (0, 2**8), torch.int32: (-(2**31), 2**31), torch.int64: (-(2**63), 2**63)}
_INTEGER_TYPES = (int, np.integer, torch.SymInt)
_REAL_TYPES = (int, float, np.integer, np.floating, torch.SymInt, torch.SymFloat)


class Distribution(NamedTuple):
    """The operator ``DRAW[name]`` and what it needs besides tensors.

    It takes (out, keys, positions, sizes, strides, offset, *parameters), and fills a row for each
    key with the values offset + sum(i_d * strides[d]) over the indices i of sizes, or those from
    offset on.
    """

    name: str
    dtype: torch.dtype
    words: int  # of 32 bits that a value takes, 1 or 2
    parameters: tuple[float | int, ...]  # the last arguments of the operator

    def advance(self, values: int) -> int:
        """Return by how much ``values`` values move a position: whole blocks of 4 words."""
        return (values * self.words + 3) // 4 * 4


def bits(function: str, dtype: torch.dtype | None) -> Distribution:
    """Words of the stream, ``torch.uint32`` (the default) or ``torch.uint64``."""
    dtype = _check_dtype(function, dtype, torch.uint32, (torch.uint32, torch.uint64))
    return Distribution("bits", dtype, 2 if dtype == torch.uint64 else 1, ())


def uniform(function: str, dtype: torch.dtype | None, low: object, high: object) -> Distribution:
    """Uniform in [low, high): both finite in ``dtype``, as their difference; low < high there."""
    dtype = _check_dtype(function, dtype, None, REALS)
    low = _finite(function, "low", low, dtype)
    high = _finite(function, "high", high, dtype)
    top = rounded(high, dtype)
    if not rounded(low, dtype) < top:
        raise value_error(function, "high", f"above low ({low}) in {dtype}", high)
    computed_in = torch.float64 if dtype == torch.float64 else torch.float32
    if high - low > FORMATS[computed_in][2] and math.isinf(rounded(high - low, computed_in)):
        raise value_error(function, "high - low", f"finite in {dtype}", high - low)
    return Distribution("uniform", dtype, _WORDS[dtype], (high - low, low, below(top, dtype)))


def normal(function: str, dtype: torch.dtype | None, mean: object, std: object) -> Distribution:
    """Normal: both finite in ``dtype``, std not negative."""
    dtype = _check_dtype(function, dtype, None, REALS)
    mean = _finite(function, "mean", mean, dtype)
    std = _finite(function, "std", std, dtype)
    if std < 0:
        raise value_error(function, "std", "0 or more", std)
    return Distribution("normal", dtype, _WORDS[dtype], (mean, std))


def exponential(function: str, dtype: torch.dtype | None, rate: object) -> Distribution:
    """Exponential: rate above 0, it and 1 / rate finite and not 0 in ``dtype``."""
    dtype = _check_dtype(function, dtype, None, REALS)
    rate = check_real(function, "rate", rate)
    scale = 1.0 / rate if 0 < rate < math.inf else 0.0  # in steps: 1 / 5e-324 is infinite
    if not 0 < rounded(scale, dtype) < math.inf:
        raise value_error(function, "rate", f"above 0, with 1 / rate finite in {dtype}", rate)
    return Distribution("exponential", dtype, _WORDS[dtype], (scale,))


LEAST_SPAN = 2.0**-64  # the least part of the normal distribution that an interval may hold
_FURTHEST = 16.0  # the normal distribution beyond it is less than a part in 2^120 of that
_AREA_BITS = 640


@functools.lru_cache(maxsize=256)
def _area(x: float) -> int:
    """Return the integral of exp(-t^2 / 2) from 0 to ``x``, by its power series, times 2^640."""
    if x < 0:
        return -_area(-x)
    top, bottom = min(x, _FURTHEST).as_integer_ratio()
    term = total = (top << _AREA_BITS) // bottom
    square = term * term >> _AREA_BITS
    k = 0
    while abs(term) > 1:
        k += 1
        term = -(term * square >> _AREA_BITS) // (2 * k)
        total += term // (2 * k + 1)
    return total


@answer_at_trace  # as its result
def _areas(a: float, b: float) -> tuple[float, float, float, float]:
    """Return middle, span, below and above of the standard normal between ``a`` and ``b``."""
    left, right, end = _area(a), _area(b), _area(_FURTHEST)
    return (
        (left + right) / (4 * end),
        (right - left) / (2 * end),
        (end + left) / (2 * end),
        (end - right) / (2 * end),
    )


def trunc_normal(
    function: str, dtype: torch.dtype | None, mean: object, std: object, a: object, b: object
) -> Distribution:
    """Normal within [a, b], of which it has to hold 2^-64, and at least one number of ``dtype``."""
    dtype = _check_dtype(function, dtype, None, REALS)
    mean = _finite(function, "mean", mean, dtype)
    std = _finite(function, "std", std, dtype)
    if rounded(std, dtype) <= 0:
        raise value_error(function, "std", f"above 0 in {dtype}", std)
    a, b = _finite(function, "a", a, dtype), _finite(function, "b", b, dtype)
    low, high = -_largest(-a, dtype), _largest(b, dtype)
    if not a < b or low > high:
        raise value_error(function, "b", f"above a ({a}), with a number of {dtype} between", b)
    areas = _areas((a - mean) / std, (b - mean) / std)
    if areas[1] < LEAST_SPAN:
        rule = "an interval that holds at least 2**-64 of the normal distribution"
        raise value_error(function, "[a, b]", rule, [a, b])
    return Distribution("trunc_normal", dtype, _WORDS[dtype], (mean, std, *areas, low, high))


def bernoulli(function: str, dtype: torch.dtype | None, p: object) -> Distribution:
    """1 with probability p in [0, 1]; ``torch.bool`` (the default), ``torch.uint8`` or a real."""
    dtype = _check_dtype(function, dtype, torch.bool, (torch.bool, torch.uint8, *REALS))
    p = check_real(function, "p", p)
    if not 0 <= p <= 1:
        raise value_error(function, "p", "in [0, 1]", p)
    return Distribution("bernoulli", dtype, 1, (round(p * 2.0**32),))


def randint(function: str, dtype: torch.dtype | None, low: object, high: object) -> Distribution:
    """Integers of [low, high), all in ``dtype``: uint8, int32 or int64 (the default)."""
    dtype = _check_dtype(function, dtype, torch.int64, tuple(INTEGERS))
    low = _check_integer(function, "low", low)
    high = _check_integer(function, "high", high)
    bottom, top = INTEGERS[dtype]
    if not bottom <= low < top:
        raise value_error(function, "low", f"in [{bottom}, {top}) for {dtype}", low)
    if not low < high <= top:
        raise value_error(function, "high", f"in (low, {top}] for {dtype} and low {low}", high)
    size = high - low
    if dtype != torch.uint8 and size == top - bottom:  # one more than the words can count to
        rule = f"below {'2**64' if dtype == torch.int64 else '2**32'} for {dtype} (or use bits)"
        raise value_error(function, "high - low", rule, size)
    return Distribution("randint", dtype, 2 if size >= 2**32 else 1, (low, signed(size)))


def constant(value: object) -> object:
    """Return the value of a number for which compiled code may hold a symbol, with a guard."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (float, torch.SymFloat)):
        return float.fromhex(float(value).hex())
    return operator.index(value) if isinstance(value, (int, torch.SymInt)) else value


def check_real(function: str, argument: str, value: object) -> float:
    """Return ``value`` as a float if it is a real number."""
    if isinstance(value, bool) or not isinstance(value, _REAL_TYPES):
        raise type_error(function, argument, "a number", value)
    try:
        found = constant(float(value))
        assert isinstance(found, float)
        return found
    except OverflowError:
        return math.copysign(math.inf, 1 if value > 0 else -1)


def _check_integer(function: str, argument: str, value: object) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, _INTEGER_TYPES):
        raise type_error(function, argument, "an integer", value)
    return operator.index(value)


def rounded(x: float, dtype: torch.dtype) -> float:
    """Return the number of ``dtype`` nearest to ``x``, ties to even; infinite past the largest."""
    digits, lowest, largest = FORMATS[dtype]
    if x == 0 or digits == 53:
        return x
    if abs(x) > 2 * largest:
        return math.copysign(math.inf, x)
    unit = max(math.frexp(x)[1] - digits, lowest)
    nearest = math.ldexp(float(round(math.ldexp(x, -unit))), unit)
    return nearest if abs(nearest) <= largest else math.copysign(math.inf, x)


def below(x: float, dtype: torch.dtype) -> float:
    """Return the largest number of ``dtype`` below ``x``, which is one of its numbers."""
    digits, lowest, _ = FORMATS[dtype]
    mantissa, exponent = math.frexp(x)
    # Below a power of two numbers lie twice as close.
    unit = max(exponent - digits - (mantissa == 0.5), lowest) if x else lowest
    return x - math.ldexp(1.0, unit)


def _largest(x: float, dtype: torch.dtype) -> float:
    """Return the largest number of ``dtype`` that is not above ``x``."""
    nearest = rounded(x, dtype)
    return nearest if nearest <= x else below(nearest, dtype)


def _finite(function: str, argument: str, value: object, dtype: torch.dtype) -> float:
    if type(value) is float and abs(value) <= FORMATS[dtype][2]:  # nearly every call
        return value
    x = check_real(function, argument, value)
    if x != x or rounded(x, dtype) in (math.inf, -math.inf):
        raise value_error(function, argument, f"finite in {dtype}", x)
    return x


def _check_dtype(
    function: str, dtype: object, default: torch.dtype | None, allowed: tuple[torch.dtype, ...]
) -> torch.dtype:
    """Return the dtype of the values; None is ``default``, or torch's own."""
    if dtype is None:
        dtype = torch.get_default_dtype() if default is None else default
    if not isinstance(dtype, torch.dtype):
        raise type_error(function, "dtype", "a torch.dtype", dtype)
    if dtype not in allowed:
        raise value_error(function, "dtype", f"one of {', '.join(map(str, allowed))}", dtype)
    return dtype
