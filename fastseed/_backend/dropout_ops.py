"""The registered operators of dropout: ``torch.ops.fastseed.dropout`` and ``layer_key``.

``.operators`` says where their implementations are. ``dropout`` is a function with derivatives of
every order: the backward pass calls it again with the same keys, so nothing of the size of the
input is saved.
"""
# Annotations are read at run time: no `from __future__ import annotations` here.

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.validation import check_int, value_error
from . import native, op_checks, operators, tensors
from .reference import dropout as reference

LEVELS = reference.LEVELS

_OP = "fastseed::dropout"


def dropout_in_numpy(
    input: Tensor, keys: Tensor, sizes: Sequence[int], strides: Sequence[int],
    offset: int, threshold: int,
) -> Tensor:  # fmt: skip
    """Zero the elements whose numbers are below ``threshold`` and scale the others.

    The input is cut into as many rows as ``keys``, (n, 2) or (n, 3), has: a third word is the index
    of the first element of its row. Indices are counted modulo 2**64. Elements along a dimension
    of stride 0, such as those of a channel, have one number.
    """
    _check(input, keys, sizes, strides, offset, threshold)
    count = input.numel() // len(keys)
    kept = torch.empty(len(keys), count, dtype=torch.bool)
    if count:
        at = np.zeros(1, np.uint64)
        for size, stride in zip(sizes or [count], strides or [1], strict=True):
            at = (at[:, None] + np.arange(size, dtype=np.uint64) * np.uint64(stride)).reshape(-1)
        for row, (lo, hi, *first) in zip(kept, keys.tolist(), strict=True):
            begin = np.uint64(sum(first, offset) % 2**64)
            row[:] = torch.from_numpy(reference.is_kept([lo, hi], at + begin, threshold))
    real = torch.float64 if input.dtype == torch.float64 else torch.float32
    scaled = (input.to(real) * reference.scale(threshold)).to(input.dtype)
    stays = torch.where(input.isnan(), input, scaled)
    return torch.where(kept.view(input.shape), stays, torch.zeros_like(input))


def _check(
    input: Tensor, keys: Tensor, sizes: Sequence[int], strides: Sequence[int],
    offset: int, threshold: int,
) -> None:  # fmt: skip
    """Refuse what csrc/ops/dropout_ops.h refuses."""
    function = "dropout"
    tensors.check_dtype_of(function, "input", input, op_checks.REALS)
    tensors.check_dense(function, "input", input)
    tensors.check_tensor(function, "keys", keys, torch.uint64)
    if keys.dim() != 2 or len(keys) == 0 or keys.size(1) not in (2, 3):
        raise value_error(function, "keys", "of shape (n, 2) or (n, 3)", tuple(keys.shape))
    for name, tensor in (("input", input), ("keys", keys)):
        if not tensor.is_contiguous():
            raise value_error(function, name, "contiguous", tensor)
    check_int(function, "threshold", threshold, 0, LEVELS)
    op_checks.check_layout(function, input.numel(), len(keys), sizes, strides, offset)


@operators.operator("out")
def layer_key(
    out: Tensor, scope: Tensor, first_row: Tensor, name_lo: int, name_hi: int, label: int,
    row_elements: int,
) -> None:  # fmt: skip
    """Write the key of a layer and the index of the first element, (3,)."""
    lo, hi = scope.tolist()
    key = reference.layer_key((lo, hi), operators.pair(name_lo, name_hi), label)
    first = int(first_row) * row_elements & 2**64 - 1
    out[:] = torch.tensor([key & 2**64 - 1, key >> 64, first], dtype=torch.uint64)


def in_memory_order(found: Tensor, like: Tensor) -> Tensor:
    """Return a contiguous tensor with the strides that torch gives to a result for ``like``."""
    if like.is_contiguous() or torch._C._functorch.is_batchedtensor(like):
        return found
    order = memory_order(torch.empty_like(like, device="meta"))
    return found.permute(order).contiguous().permute(inverse(order))


def memory_order(tensor: Tensor) -> list[int]:
    """Return the dimensions of a tensor, that of the longest stride first."""
    return sorted(range(tensor.dim()), key=tensor.stride().__getitem__, reverse=True)


def inverse(order: list[int]) -> list[int]:
    """Return the permutation that undoes another one."""
    return sorted(range(len(order)), key=order.__getitem__)


# ---------------------------------------------------------------- registration


def _fake(input: Tensor, *_: object) -> Tensor:
    return torch.empty_like(input)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, keys, *ctx.rest = inputs
    ctx.save_for_backward(keys)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    (keys,) = ctx.saved_tensors
    found = torch.ops.fastseed.dropout(gradient.contiguous(), keys, *ctx.rest)
    return in_memory_order(found, gradient), None, None, None, None, None


def _batched(
    info: Any, in_dims: tuple[Any, ...], input: Tensor, keys: Tensor, *rest: Any
) -> tuple[Tensor, int]:
    """Drop a batch under ``torch.vmap``: its keys are those of one call with more rows."""
    input, keys = (
        t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip((input, keys), in_dims[:2], strict=True)
    )
    keys = keys.flatten(0, 1).contiguous()
    return torch.ops.fastseed.dropout(input.contiguous(), keys, *rest), 0


operators.IMPLEMENTATIONS["dropout"] = dropout_in_numpy
operators.define(
    "dropout",
    "(Tensor input, Tensor keys, int[] sizes, int[] strides, int offset, int threshold) -> Tensor",
    _fake,
)
torch.library.register_autograd(_OP, _backward, setup_context=_save, lib=native.library)
torch.library.register_vmap(_OP, _batched, lib=native.library)
