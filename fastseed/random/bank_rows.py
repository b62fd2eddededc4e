"""Choosing rows of a :class:`~fastseed.random.StreamBank`: indices, or a mask."""

from __future__ import annotations

from typing import Any

import torch

from .._backend import tensors
from .._utils.validation import check_instance, value_error

# torch computes little with unsigned dtypes; these hold the same bits.
_SIGNED = {torch.uint32: torch.int32, torch.uint64: torch.int64}


def check_rows(function: str, rows: Any, n: int, device: torch.device) -> None:
    """Raise TypeError or ValueError unless ``rows`` chooses from n streams on ``device``."""
    check_instance(function, "rows", rows, torch.Tensor, "a tensor of indices or a mask")
    if rows.dtype not in (torch.bool, torch.int32, torch.int64):
        raise TypeError(
            f"fastseed.{function}: rows must be of dtype torch.int64, torch.int32 or "
            f"torch.bool, got {rows.dtype}"
        )
    mask = rows.dtype == torch.bool
    tensors.check_tensor(function, "rows", rows, rows.dtype, (n,) if mask else None, device)
    if rows.dim() != 1:
        raise value_error(function, "rows", "of shape (m,)", tuple(rows.shape))
    if not mask:
        tensors.check_values(function, "rows", rows, n - 1)


def zero(values: torch.Tensor, rows: torch.Tensor) -> None:
    """Zero the rows of ``values`` where ``rows``, (n,) torch.bool."""
    bits = values.view(_SIGNED.get(values.dtype, values.dtype))
    bits.masked_fill_(rows.view(-1, *(1,) * (values.dim() - 1)), 0)
