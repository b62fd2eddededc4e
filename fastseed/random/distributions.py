"""Distributions: the checked parameters of an operator, prepared from the arguments of a function.

``docs/draws.md`` specifies each parameter. Everything here is plain Python on plain numbers, so
that ``torch.compile`` can trace it into a constant.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from .._backend import draw_ops as _draw_ops  # noqa: F401  (defines the operators)
from .._backend.derive_ops import signed
from .._utils.validation import type_error, value_error

_OPS = torch.ops.fastseed
_BITS = _OPS.draw_bits.default
_UNIFORM = _OPS.draw_uniform.default
_NORMAL = _OPS.draw_normal.default
_EXPONENTIAL = _OPS.draw_exponential.default
_BERNOULLI = _OPS.draw_bernoulli.default
_RANDINT = _OPS.draw_randint.default

REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MAX_WORDS = 2**56
"""Words of one stream: the end of the range of positions."""

# For each dtype: bits of precision, the exponent of its smallest number, the largest number.
_FORMATS = {
    torch.float16: (11, -24, 65504.0),
    torch.bfloat16: (8, -133, math.ldexp(255.0, 120)),
    torch.float32: (24, -149, math.ldexp(2.0**24 - 1, 104)),
    torch.float64: (53, -1074, math.ldexp(2.0**53 - 1, 971)),
}
_INTEGERS = {
    torch.uint8: (0, 2**8),
    torch.int32: (-(2**31), 2**31),
    torch.int64: (-(2**63), 2**63),
}
_INTEGER_TYPES = (int, np.integer, torch.SymInt)
_NUMBER_TYPES = (int, float, np.integer, np.floating, torch.SymInt, torch.SymFloat)


class Distribution(NamedTuple):
    """An operator and what it needs besides tensors.

    Attributes:
        op: the operator.
        dtype: the dtype of the values.
        words: how many 32-bit words a value takes, 1 or 2.
        parameters: the operator's last arguments.
    """

    op: Any
    dtype: torch.dtype
    words: int
    parameters: tuple[float | int, ...]

    def advance(self, values: int) -> int:
        """Return by how much ``values`` values move a position: whole blocks of 4 words."""
        return (values * self.words + 3) // 4 * 4

    def fill(
        self,
        out: torch.Tensor,
        keys: torch.Tensor,
        positions: torch.Tensor | None,
        sizes: tuple[int, ...] = (),
        strides: tuple[int, ...] = (),
        offset: int = 0,
    ) -> None:
        """Fill ``out``, contiguous, with a row of values for each row of ``keys``, (n, 2).

        Each row holds the values ``offset + sum(i_d * strides[d])`` over the indices i of
        ``sizes``, or those from ``offset`` on. Arguments are trusted.
        """
        self.op(out, keys, positions, sizes, strides, offset, *self.parameters)


# ---------------------------------------------------------------- the distributions


def bits(function: str, dtype: torch.dtype | None) -> Distribution:
    """Words of the stream, ``torch.uint32`` (the default) or ``torch.uint64``."""
    dtype = _check_dtype(function, dtype, torch.uint32, (torch.uint32, torch.uint64))
    return Distribution(_BITS, dtype, 2 if dtype == torch.uint64 else 1, ())


def uniform(function: str, dtype: torch.dtype | None, low: Any, high: Any) -> Distribution:
    """Uniform in [low, high): both finite in ``dtype``, as their difference; low < high there."""
    dtype = _check_dtype(function, dtype, torch.get_default_dtype(), REALS)
    low, high = _finite(function, "low", low, dtype), _finite(function, "high", high, dtype)
    top = rounded(high, dtype)
    if not rounded(low, dtype) < top:
        raise value_error(function, "high", f"above low ({low}) in {dtype}", high)
    computed_in = torch.float64 if dtype == torch.float64 else torch.float32
    if math.isinf(rounded(high - low, computed_in)):
        raise value_error(function, "high - low", f"finite in {dtype}", high - low)
    return Distribution(_UNIFORM, dtype, _words(dtype), (high - low, low, below(top, dtype)))


def normal(function: str, dtype: torch.dtype | None, mean: Any, std: Any) -> Distribution:
    """Normal: both finite in ``dtype``, std not negative."""
    dtype = _check_dtype(function, dtype, torch.get_default_dtype(), REALS)
    mean, std = _finite(function, "mean", mean, dtype), _finite(function, "std", std, dtype)
    if std < 0:
        raise value_error(function, "std", "0 or more", std)
    return Distribution(_NORMAL, dtype, _words(dtype), (mean, std))


def exponential(function: str, dtype: torch.dtype | None, rate: Any) -> Distribution:
    """Exponential: rate above 0, it and 1 / rate finite and not 0 in ``dtype``."""
    dtype = _check_dtype(function, dtype, torch.get_default_dtype(), REALS)
    rate = number(function, "rate", rate)
    scale = 1.0 / rate if 0 < rate < math.inf else 0.0  # in steps: 1 / 5e-324 is infinite
    if not 0 < rounded(scale, dtype) < math.inf:
        raise value_error(function, "rate", f"above 0, with 1 / rate finite in {dtype}", rate)
    return Distribution(_EXPONENTIAL, dtype, _words(dtype), (scale,))


def bernoulli(function: str, dtype: torch.dtype | None, p: Any) -> Distribution:
    """1 with probability p in [0, 1]; ``torch.bool`` (the default), ``torch.uint8`` or a real."""
    dtype = _check_dtype(function, dtype, torch.bool, (torch.bool, torch.uint8, *REALS))
    p = number(function, "p", p)
    if not 0 <= p <= 1:
        raise value_error(function, "p", "in [0, 1]", p)
    return Distribution(_BERNOULLI, dtype, 1, (round(p * 2.0**32),))


def randint(function: str, dtype: torch.dtype | None, low: Any, high: Any) -> Distribution:
    """Integers of [low, high), all in ``dtype``: uint8, int32 or int64 (the default)."""
    dtype = _check_dtype(function, dtype, torch.int64, tuple(_INTEGERS))
    low, high = integer(function, "low", low), integer(function, "high", high)
    bottom, top = _INTEGERS[dtype]
    if not bottom <= low < top:
        raise value_error(function, "low", f"in [{bottom}, {top}) for {dtype}", low)
    if not low < high <= top:
        raise value_error(function, "high", f"in (low, {top}] for {dtype} and low {low}", high)
    size = high - low
    if dtype != torch.uint8 and size == top - bottom:  # one more than the words can count to
        rule = f"below {'2**64' if dtype == torch.int64 else '2**32'} for {dtype} (or use bits)"
        raise value_error(function, "high - low", rule, size)
    return Distribution(_RANDINT, dtype, 2 if size >= 2**32 else 1, (low, signed(size)))


BY_NAME: dict[str, Callable[..., Distribution]] = {
    "rand": uniform,
    "uniform": uniform,
    "randn": normal,
    "normal": normal,
    "exponential": exponential,
    "bernoulli": bernoulli,
    "randint": randint,
    "bits": bits,
}
"""The distribution of each function, of its in-place form ``name_``, and of a bank's method."""


def distribution(function: str, dtype: torch.dtype | None, *parameters: Any) -> Distribution:
    """Return the distribution of ``rand``, ``uniform_`` or ``StreamBank.rand``, checked."""
    name = function.rpartition(".")[2].rstrip("_")
    return BY_NAME[name](function, dtype, *parameters)


# ---------------------------------------------------------------- numbers


def number(function: str, argument: str, value: Any) -> float:
    """Return ``value`` as a float if it is a real number.

    Compiled code may hold a symbol in its place: ``hex`` turns it into its value, with a guard.
    """
    if isinstance(value, bool) or not isinstance(value, _NUMBER_TYPES):
        raise type_error(function, argument, "a number", value)
    try:
        return float.fromhex(float(value).hex())
    except OverflowError:
        return math.copysign(math.inf, 1 if value > 0 else -1)


def integer(function: str, argument: str, value: Any) -> int:
    """Return ``value`` as an int if it is an integer, or a symbol of compiled code."""
    if isinstance(value, bool) or not isinstance(value, _INTEGER_TYPES):
        raise type_error(function, argument, "an integer", value)
    return operator.index(value)


def rounded(x: float, dtype: torch.dtype) -> float:
    """Return the number of ``dtype`` nearest to ``x``, ties to even; infinite past the largest."""
    digits, lowest, largest = _FORMATS[dtype]
    if x == 0 or digits == 53:
        return x
    if abs(x) > 2 * largest:
        return math.copysign(math.inf, x)
    unit = max(math.frexp(x)[1] - digits, lowest)
    nearest = math.ldexp(float(round(math.ldexp(x, -unit))), unit)
    return nearest if abs(nearest) <= largest else math.copysign(math.inf, x)


def below(x: float, dtype: torch.dtype) -> float:
    """Return the largest number of ``dtype`` below ``x``, which is one of its numbers."""
    digits, lowest, _ = _FORMATS[dtype]
    mantissa, exponent = math.frexp(x)
    # Below a power of two numbers lie twice as close.
    unit = max(exponent - digits - (mantissa == 0.5), lowest) if x else lowest
    return x - math.ldexp(1.0, unit)


def _words(dtype: torch.dtype) -> int:
    return 2 if dtype == torch.float64 else 1


def _finite(function: str, argument: str, value: Any, dtype: torch.dtype) -> float:
    x = number(function, argument, value)
    if x != x or rounded(x, dtype) in (math.inf, -math.inf):
        raise value_error(function, argument, f"finite in {dtype}", x)
    return x


def _check_dtype(
    function: str, dtype: Any, default: torch.dtype, allowed: tuple[torch.dtype, ...]
) -> torch.dtype:
    if dtype is None:
        dtype = default
    if not isinstance(dtype, torch.dtype):
        raise type_error(function, "dtype", "a torch.dtype", dtype)
    if dtype not in allowed:
        raise value_error(function, "dtype", f"one of {', '.join(map(str, allowed))}", dtype)
    return dtype
