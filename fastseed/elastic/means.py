"""The mean of losses and metrics over elements and ranks, exact but for one rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

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
_RULE = "a tensor, or tensors of one element"


def mean(
    values: torch.Tensor | Iterable[torch.Tensor],
    *,
    weights: torch.Tensor | Iterable[torch.Tensor] | None = None,
    group: dist.ProcessGroup | DeviceMesh | None = None,
) -> torch.Tensor:
    """Return the mean of all values of all ranks, correctly rounded.

    The sum is exact and the quotient is rounded once, so the mean depends on the values alone: not
    on their order, nor on which rank has which of them. Every rank of the group has to call it,
    also one without values, and gets the same bits.

    Args:
        values: a tensor of any shape, or tensors of one element each; float32, float64, float16 or
            bfloat16.
        weights: as many, finite and at least 0, such as the tokens of each value:
            sum(w * x) / sum(w), with both sums exact. None: all are 1.
        group: the ranks that have values, a process group or a mesh of one dimension; None: all
            ranks, or this process alone where ``torch.distributed`` is not initialized.

    Returns:
        A tensor without dimensions on the device of the values: float32 if those of all ranks are
        of float32, float16 and bfloat16, else float64. NaN without values.

    Raises:
        TypeError: values or weights are not such tensors.
        ValueError: there are not as many weights as values, or one is negative or not finite, or
            all add up to 0; some ranks give weights, and others none.
        RuntimeError: another rank has such an error, ended, or did not answer in time; with its
            name.

    Examples:
        >>> import torch, fastseed
        >>> losses = [torch.tensor(0.1), torch.tensor(0.2), torch.tensor(0.3)]
        >>> fastseed.elastic.mean(losses, weights=torch.tensor([1.0, 1.0, 2.0]))
        tensor(0.2250)
    """
    ranks = check_group(_NAME, group)
    problem: Exception | None = None
    numbers, factors = torch.zeros(0), None
    try:
        numbers = _numbers("values", values)
        factors = None if weights is None else _weights(weights, numbers)
    except (TypeError, ValueError, RuntimeError) as error:
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


def _weights(weights: torch.Tensor | Iterable[torch.Tensor], numbers: torch.Tensor) -> torch.Tensor:
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


def _numbers(name: str, given: torch.Tensor | Iterable[torch.Tensor]) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        return _checked(name, given)
    try:
        listed = list(given)
    except TypeError:
        raise validation.type_error(_NAME, name, _RULE, given) from None
    found = [_checked(f"{name}[{i}]", value) for i, value in enumerate(listed)]
    if any(value.numel() != 1 for value in found):
        raise validation.value_error(_NAME, name, _RULE, listed)
    return torch.cat(found) if found else torch.zeros(0)


def _checked(name: str, tensor: Any) -> torch.Tensor:
    if layout.is_dtensor(tensor):
        raise validation.type_error(_NAME, name, "a tensor of this rank, not a DTensor", tensor)
    found = tensors.check_dtype(_NAME, name, tensor, *REALS)
    tensors.check_dense(_NAME, name, found)
    tensors.check_data(_NAME, name, found)
    return found.detach().reshape(-1)
