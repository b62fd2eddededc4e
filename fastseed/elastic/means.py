"""The mean of losses and metrics over elements and ranks, exact but for one rounding."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from .._backend import tensors
from .._backend.ops.draws import REALS
from .._utils import validation
from ..distributed.agreement import check_group
from ..random import layout
from . import sums

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_NAME = "elastic.mean"
_EXACT_INTEGER = 2**53  # all integers up to here are numbers of float64


def mean(
    values: torch.Tensor | Iterable[torch.Tensor | float],
    *,
    weights: torch.Tensor | Iterable[torch.Tensor | float] | None = None,
    group: dist.ProcessGroup | DeviceMesh | None = None,
) -> torch.Tensor:
    """Return the mean of all values of all ranks, correctly rounded.

    The sum is exact and the quotient is rounded once, so the mean depends on the values alone: not
    on their order, nor on which rank has which of them. Every rank of the group has to call it,
    also one without values, and gets the same bits.

    Args:
        values: a tensor of any shape, or tensors and numbers, of which each tensor has one element;
            floating point or integers up to 2**53.
        weights: as many, finite and at least 0, such as the tokens of each value:
            sum(w * x) / sum(w), with both sums exact. None: all are 1.
        group: the ranks that have values, a process group or a mesh of one dimension; None: all
            ranks, or this process alone where ``torch.distributed`` is not initialized.

    Returns:
        A tensor without dimensions on the device of the values: float32 if those of all ranks are
        of float32, float16 and bfloat16, else float64. NaN without values.

    Raises:
        TypeError: values or weights are neither numbers nor tensors of them.
        ValueError: there are not as many weights as values, or one is negative or not finite, or
            all add up to 0; an integer is beyond 2**53; some ranks give weights, and others none.
        RuntimeError: another rank has such an error, ended, or did not answer in time; with its
            name.

    Examples:
        >>> import fastseed
        >>> fastseed.elastic.mean([0.1, 0.2, 0.3], weights=[1, 1, 2])
        tensor(0.2250, dtype=torch.float64)
    """
    ranks = check_group(_NAME, group)
    problem: Exception | None = None
    numbers, factors = torch.zeros(0), None
    try:
        numbers = _numbers("values", values)
        factors = None if weights is None else _weights(weights, numbers)
    except (TypeError, ValueError) as error:
        problem = error
    totals = [sums.accumulate([numbers])]
    if factors is None:
        totals += [torch.zeros_like(totals[0])] * 2  # so that ranks can differ and be told so
    else:
        totals.append(sums.accumulate([numbers.to(torch.float64)], [factors]))
        totals.append(sums.accumulate([factors]))
    rows, size = torch.stack(totals), 1
    if dist.is_available() and dist.is_initialized():
        sums.mark(rows, problem)
        rows = sums.all_reduce(_NAME, rows, ranks)
        size = dist.get_world_size(ranks)
    found = [sums.read(row) for row in rows.cpu()]
    sums.check(_NAME, found[:1], problem)
    plain, products, shares = found
    dtype = sums.dtype_of(found[:1])
    if shares.wide not in (0, size):
        rule = "given on all ranks or on none"
        raise validation.value_error(_NAME, "weights", rule, f"{shares.wide} of {size}")
    if shares.wide and shares.finite == 0 and plain.values > 0:
        raise validation.value_error(_NAME, "weights", "of a sum above 0", weights)
    if shares.wide:
        mean = _quotient(products, shares.finite, 0, dtype)
    else:
        mean = _quotient(plain, plain.values, sums.EXPONENT, dtype)
    return torch.tensor(mean, dtype=dtype, device=numbers.device)


def _weights(
    weights: torch.Tensor | Iterable[torch.Tensor | float], numbers: torch.Tensor
) -> torch.Tensor:
    factors = _numbers("weights", weights).to(numbers.device)
    if factors.numel() != numbers.numel():
        rule = f"as many as values, {numbers.numel()}"
        raise validation.value_error(_NAME, "weights", rule, factors.numel())
    factors = factors.to(torch.float64)
    if not (factors.isfinite() & (factors >= 0)).all():
        raise validation.value_error(_NAME, "weights", "finite and at least 0", weights)
    return factors


def _quotient(total: sums.Total, divisor: int, exponent: int, dtype: torch.dtype) -> float:
    if total.special is not None:
        return total.special
    return sums.nearest(total.finite, divisor, exponent, dtype) if divisor else math.nan


def _numbers(name: str, given: torch.Tensor | Iterable[torch.Tensor | float]) -> torch.Tensor:
    """Return all numbers in one dimension, in a floating-point type that holds each of them."""
    if isinstance(given, torch.Tensor):
        return _checked(name, given)
    try:
        listed = list(given)
    except TypeError:
        rule = "a tensor, or tensors and numbers"
        raise validation.type_error(_NAME, name, rule, given) from None
    found = []
    for i, value in enumerate(listed):
        label, number = f"{name}[{i}]", value
        if not isinstance(value, torch.Tensor):
            if isinstance(value, bool) or not isinstance(value, Real):
                raise validation.type_error(_NAME, label, "a number or a tensor", value)
            if isinstance(value, Integral) and abs(int(value)) > _EXACT_INTEGER:
                raise validation.value_error(_NAME, label, "at most 2**53", value)
            number = torch.tensor(float(value), dtype=torch.float64)
        if number.numel() != 1:
            raise validation.value_error(_NAME, label, "of one element", value)
        found.append(_checked(label, number))
    if not found:
        return torch.zeros(0)
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in found])
    home = next((x.device for x in found if x.device.type != "cpu"), found[0].device)
    return torch.cat([x.to(home, dtype) for x in found])


def _checked(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a plain tensor of numbers in one dimension, integers as float64."""
    if layout.is_dtensor(tensor):
        raise validation.type_error(_NAME, name, "a tensor of this rank, not a DTensor", tensor)
    tensors.check_dense(_NAME, name, tensor)
    tensors.check_data(_NAME, name, tensor)
    tensor = tensor.detach().reshape(-1)
    if tensor.dtype in REALS:
        return tensor
    is_other = tensor.is_complex() or tensor.is_quantized or tensor.dtype == torch.bool
    if is_other or tensor.is_floating_point():
        rule = "of dtype float16, bfloat16, float32, float64 or integers"
        raise validation.type_error(_NAME, name, rule, tensor)
    wide = tensor.to(torch.float64)
    if (wide.abs() > _EXACT_INTEGER).any():
        raise validation.value_error(_NAME, name, "at most 2**53", tensor)
    return wide
