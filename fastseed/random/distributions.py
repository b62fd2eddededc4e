"""What is drawn: a distribution with its parameters, checked and prepared for the operators.

``docs/draws.md`` says what each parameter is. Everything here is plain Python on plain numbers, so
that ``torch.compile`` can trace it into a constant.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np
import torch

from .._backend import draw_ops
from .._utils import validation

_OPS = torch.ops.fastseed
_BITS = _OPS.draw_bits.default
_UNIFORM = _OPS.draw_uniform.default
_NORMAL = _OPS.draw_normal.default
_EXPONENTIAL = _OPS.draw_exponential.default
_BERNOULLI = _OPS.draw_bernoulli.default
_RANDINT = _OPS.draw_randint.default

REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MAX_WORDS = 2**56  # of one stream: what positions count to

# Of each dtype: bits of precision, the exponent of its smallest number, the largest number.
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
        dtype: of the values.
        words: 32-bit words that a value takes, 1 or 2.
        parameters: the operator's last arguments.
    """

    op: Any
    dtype: torch.dtype
    words: int
    parameters: tuple[float | int, ...]

    def advance(self, values: int) -> int:
        """By how much a draw of ``values`` values moves a stream's position: whole blocks."""
        return 4 * draw_ops.block_count(values, self.words)

    def fill(
        self,
        out: torch.Tensor,
        keys: torch.Tensor,
        positions: torch.Tensor | None,
        sizes: tuple[int, ...] = (),
        strides: tuple[int, ...] = (),
        offset: int = 0,
    ) -> None:
        """Draw into ``out``, contiguous, a row of values for each row of ``keys``, (n, 2).

        Each row holds the values ``offset + sum(i_d * strides[d])`` over the indices i of
        ``sizes``, or those from ``offset`` on. Arguments are trusted.
        """
        self.op(out, keys, positions, sizes, strides, offset, *self.parameters)


# ---------------------------------------------------------------- the distributions


def bits(function: str, dtype: torch.dtype | None = None) -> Distribution:
    """The words themselves, ``torch.uint32`` (the default) or ``torch.uint64``."""
    dtype = _check_dtype(
        function, torch.uint32 if dtype is None else dtype, (torch.uint32, torch.uint64)
    )
    return Distribution(_BITS, dtype, 2 if dtype == torch.uint64 else 1, ())


def uniform(function: str, low: Any, high: Any, dtype: torch.dtype | None = None) -> Distribution:
    """[low, high): both finite in ``dtype``, and so is their difference; low < high there."""
    dtype = _real(function, dtype)
    low, high = _finite(function, "low", low, dtype), _finite(function, "high", high, dtype)
    bottom, top = rounded(low, dtype), rounded(high, dtype)
    if not bottom < top:
        raise ValueError(
            f"fastseed.{function}: high must be above low in {dtype}, got {low}, {high}"
        )
    if rounded(high - low, _computed_in(dtype)) in (math.inf, -math.inf):
        raise ValueError(
            f"fastseed.{function}: high - low must be finite in {dtype}, got {low}, {high}"
        )
    return Distribution(_UNIFORM, dtype, _words(dtype), (high - low, low, below(top, dtype)))


def normal(function: str, mean: Any, std: Any, dtype: torch.dtype | None = None) -> Distribution:
    """Normal: both finite in ``dtype``, std not negative."""
    dtype = _real(function, dtype)
    mean, std = _finite(function, "mean", mean, dtype), _finite(function, "std", std, dtype)
    if std < 0:
        raise ValueError(f"fastseed.{function}: std must not be negative, got {std}")
    return Distribution(_NORMAL, dtype, _words(dtype), (mean, std))


def exponential(function: str, rate: Any, dtype: torch.dtype | None = None) -> Distribution:
    """Exponential: rate above 0, it and 1 / rate finite and not 0 in ``dtype``."""
    dtype = _real(function, dtype)
    rate = number(function, "rate", rate)
    scale = 1.0 / rate if 0 < rate < math.inf else 0.0  # in steps: 1 / 5e-324 is infinite
    if not 0 < rounded(scale, dtype) < math.inf:
        raise ValueError(
            f"fastseed.{function}: rate must be above 0, and 1 / rate a finite number above 0 "
            f"in {dtype}, got {rate}"
        )
    return Distribution(_EXPONENTIAL, dtype, _words(dtype), (scale,))


def bernoulli(function: str, p: Any, dtype: torch.dtype | None = None) -> Distribution:
    """1 with probability p in [0, 1]; ``torch.bool`` (the default), ``torch.uint8`` or a real."""
    dtype = _check_dtype(
        function, torch.bool if dtype is None else dtype, (torch.bool, torch.uint8, *REALS)
    )
    p = number(function, "p", p)
    if not 0 <= p <= 1:
        raise ValueError(f"fastseed.{function}: p must be in [0, 1], got {p}")
    return Distribution(_BERNOULLI, dtype, 1, (round(p * 2.0**32),))


def randint(function: str, low: Any, high: Any, dtype: torch.dtype | None = None) -> Distribution:
    """Integers of [low, high), which lie in ``dtype``: uint8, int32 or int64 (the default)."""
    dtype = _check_dtype(function, torch.int64 if dtype is None else dtype, tuple(_INTEGERS))
    low, high = integer(function, "low", low), integer(function, "high", high)
    bottom, top = _INTEGERS[dtype]
    if not bottom <= low < top:
        raise ValueError(
            f"fastseed.{function}: low must be in [{bottom}, {top}) for {dtype}, got {low}"
        )
    if not low < high <= top:
        raise ValueError(
            f"fastseed.{function}: high must be in (low, {top}] for {dtype}, got {high} "
            f"with low {low}"
        )
    size = high - low
    if dtype != torch.uint8 and size == top - bottom:  # one more than the words can count to
        width = "2**64" if dtype == torch.int64 else "2**32"
        raise ValueError(
            f"fastseed.{function}: high - low must be below {width} for {dtype}, got {size}; "
            "use bits and view them"
        )
    signed = size - 2**64 if size >= 2**63 else size  # the same 64 bits in the schema's type
    return Distribution(_RANDINT, dtype, 2 if size >= 2**32 else 1, (low, signed))


# ---------------------------------------------------------------- numbers


def number(function: str, argument: str, value: Any) -> float:
    """``value`` as a float; TypeError for what is no real number.

    Compiled code may hold a symbol in its place: ``hex`` turns it into its value, with a guard.
    """
    if isinstance(value, bool) or not isinstance(value, _NUMBER_TYPES):
        raise TypeError(
            f"fastseed.{function}: {argument} must be a number, "
            f"got {validation.describe(value)} of type {type(value).__name__}"
        )
    try:
        return float.fromhex(float(value).hex())
    except OverflowError:
        return math.copysign(math.inf, 1 if value > 0 else -1)


def integer(function: str, argument: str, value: Any) -> int:
    """``value`` as an int; TypeError for what is no integer."""
    if isinstance(value, bool) or not isinstance(value, _INTEGER_TYPES):
        raise TypeError(
            f"fastseed.{function}: {argument} must be an integer, "
            f"got {validation.describe(value)} of type {type(value).__name__}"
        )
    return operator.index(value)


def rounded(x: float, dtype: torch.dtype) -> float:
    """The number of ``dtype`` nearest to ``x``, ties to even; infinite beyond the largest."""
    digits, lowest, largest = _FORMATS[dtype]
    if x == 0 or digits == 53:
        return x
    if abs(x) > 2 * largest:
        return math.copysign(math.inf, x)
    unit = max(math.frexp(x)[1] - digits, lowest)
    nearest = math.ldexp(float(round(math.ldexp(x, -unit))), unit)
    return nearest if abs(nearest) <= largest else math.copysign(math.inf, x)


def below(x: float, dtype: torch.dtype) -> float:
    """The largest number of ``dtype`` below ``x``, which is one of its numbers."""
    digits, lowest, _ = _FORMATS[dtype]
    mantissa, exponent = math.frexp(x)
    # Below a power of two numbers lie twice as close.
    unit = max(exponent - digits - (mantissa == 0.5), lowest) if x else lowest
    return x - math.ldexp(1.0, unit)


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _words(dtype: torch.dtype) -> int:
    return 2 if dtype == torch.float64 else 1


def _finite(function: str, argument: str, value: Any, dtype: torch.dtype) -> float:
    x = number(function, argument, value)
    if x != x or rounded(x, dtype) in (math.inf, -math.inf):
        raise ValueError(f"fastseed.{function}: {argument} must be finite in {dtype}, got {x}")
    return x


def _real(function: str, dtype: torch.dtype | None) -> torch.dtype:
    return _check_dtype(function, torch.get_default_dtype() if dtype is None else dtype, REALS)


def _check_dtype(
    function: str, dtype: torch.dtype, allowed: tuple[torch.dtype, ...]
) -> torch.dtype:
    if not isinstance(dtype, torch.dtype):
        raise TypeError(
            f"fastseed.{function}: dtype must be a torch.dtype, "
            f"got {validation.describe(dtype)} of type {type(dtype).__name__}"
        )
    if dtype not in allowed:
        names = ", ".join(map(str, allowed))
        raise ValueError(f"fastseed.{function}: dtype must be one of {names}, got {dtype}")
    return dtype
