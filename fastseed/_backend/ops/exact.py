"""Exact sums: ``torch.ops.fastseed.exact_sum``, and torch's own operations on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..reference import exact_sum as reference
from .register import define

SIZE = reference.SIZE
_CHUNK = 1 << 22  # elements at a time: temporary integers are of 64 bits
_LOW = 2**32 - 1


def in_torch(total: Tensor, values: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Add all elements of all values, or with factors their products, on the device they are on.

    All limbs but the last one are in [-1, 2**32] afterwards: of the same number, not always equal.
    """
    for i, tensor in enumerate(values):
        pair = (tensor, factors[i]) if factors else (tensor,)
        is_wide = any(t.dtype == torch.float64 for t in pair)
        dtype = torch.float64 if is_wide else torch.float32
        flat = [t.detach().to(dtype).reshape(-1) for t in pair]
        for parts in zip(*(torch.split(t, _CHUNK) for t in flat), strict=True):
            _add_in_torch(total, *parts)
            for _ in range(2):  # carry: the second time is for what the first one carried
                limbs = total[: reference.LIMBS - 1]
                carried = limbs >> 32
                limbs &= _LOW
                total[1 : reference.LIMBS] += carried


def _add_in_torch(total: Tensor, values: Tensor, factors: Tensor | None = None) -> None:
    number, at, is_finite = _parts_in_torch(values)
    terms, kinds = [(number, at)], values
    if factors is not None:
        kinds = values * factors
        other, other_at, other_is_finite = _parts_in_torch(factors)
        at, is_finite = at + other_at, is_finite & other_is_finite
        if values.dtype == torch.float64:  # halves of 27 bits: products of 106 bits in three terms
            a, b, c, d = number >> 27, number & 2**27 - 1, other >> 27, other & 2**27 - 1
            terms = [(a * c, at + 54), (a * d + b * c, at + 27), (b * d, at)]
        else:
            terms = [(number * other, at)]
    total[reference.NAN] += (~is_finite & kinds.isnan()).sum()
    total[reference.POSITIVE_INFINITY] += (~is_finite & (kinds == torch.inf)).sum()
    total[reference.NEGATIVE_INFINITY] += (~is_finite & (kinds == -torch.inf)).sum()
    total[reference.COUNT] += values.numel()
    for integer, exponent in terms:
        place = torch.where(is_finite, exponent, 0) + reference.FRACTION_BITS
        integer = torch.where(is_finite, integer, 0)
        limb, shift = place >> 5, place & 31
        low = (integer & _LOW) << shift
        high = (low >> 32) + (integer >> 32 << shift)  # signed, as `integer` is
        for k, digits in enumerate((low & _LOW, high & _LOW, high >> 32)):
            total.index_add_(0, limb + k, digits)


def _parts_in_torch(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return integers and exponents, integer * 2**exponent, and whether each value is finite."""
    is_wide = values.dtype == torch.float64
    width, most, bias = (52, 2047, 1075) if is_wide else (23, 255, 150)
    bits = values.view(torch.int64 if is_wide else torch.int32).to(torch.int64)
    exponent = bits >> width & most
    significand = bits & 2**width - 1 | (exponent > 0).to(torch.int64) << width
    number = torch.where(bits < 0, -significand, significand)
    return number, exponent.clamp(min=1) - bias, exponent != most


def _reference(total: Tensor, values: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Add all elements of all values, or with factors their products, and carry."""
    in_torch(total, values, factors)
    reference.normalize(total.numpy())


exact_sum = define(
    "exact_sum(Tensor(a0!) total, Tensor[] values, Tensor[] factors) -> ()", _reference
)
