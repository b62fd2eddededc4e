"""Drawing from rows of a ``fastseed.random.StreamBank``: all, indices, or a mask."""

from __future__ import annotations

import torch

from .._backend import tensors
from .._utils.validation import check_instance, value_error
from . import functional
from .distributions import Distribution
from .functional import Shape

# torch computes little with unsigned dtypes; these hold the same bits.
_SIGNED = {torch.uint32: torch.int32, torch.uint64: torch.int64}


def draw(
    function: str,
    distribution: Distribution,
    keys: torch.Tensor,
    positions: torch.Tensor,
    shape: Shape,
    rows: torch.Tensor | None,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Return (rows, *shape) values of a bank's streams, and advance the positions of these."""
    sizes, count = functional.check_shape(function, shape, distribution.words)
    advance: int | torch.Tensor = distribution.advance(count)
    if rows is None and out is None:  # nearly every call
        whole = (keys.size(0), *sizes)
        found = functional.empty_values(function, distribution.dtype, keys, whole)
        distribution.op(found, keys, positions, (), (), 0, *distribution.parameters)
        positions.add_(advance)
        return found
    inputs = {"the bank's keys": keys, "the bank's positions": positions, "rows": rows}
    if rows is not None:
        _check_rows(function, rows, keys.size(0), keys.device)
    if rows is None or rows.dtype == torch.bool:
        whole = (keys.size(0), *sizes)
        found = functional.draw_into(function, distribution, keys, positions, whole, out, inputs)
        if rows is not None:
            same_bits = _SIGNED.get(found.dtype)  # not for others: they may be negated views
            bits = found if same_bits is None else found.view(same_bits)
            bits.masked_fill_(rows.logical_not().view(-1, *(1,) * (found.dim() - 1)), 0)
            advance = rows.to(torch.int64) * advance
        positions.add_(advance)
        return found
    rows = rows.to(torch.int64)
    own = keys.view(torch.int64).index_select(0, rows).view(torch.uint64)
    at = positions.index_select(0, rows)
    whole = (rows.size(0), *sizes)
    found = functional.draw_into(function, distribution, own, at, whole, out, inputs)
    positions.index_copy_(0, rows, at + advance)
    return found


def _check_rows(function: str, rows: torch.Tensor, n: int, device: torch.device) -> None:
    check_instance(function, "rows", rows, torch.Tensor, "a tensor of indices or a mask")
    if rows.dtype not in (torch.bool, torch.int32, torch.int64):
        rule = "of dtype torch.int64, torch.int32 or torch.bool"
        raise TypeError(f"fastseed.{function}: rows must be {rule}, got {rows.dtype}")
    mask = rows.dtype == torch.bool
    tensors.check_tensor(function, "rows", rows, rows.dtype, (n,) if mask else None, device)
    if rows.dim() != 1:
        raise value_error(function, "rows", "of shape (m,)", tuple(rows.shape))
    if not mask:
        tensors.check_values(function, "rows", rows, n - 1)
