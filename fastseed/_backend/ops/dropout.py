"""The operators of dropout: ``torch.ops.fastseed.dropout`` and ``layer_key``.

``dropout`` has derivatives of every order: the backward pass calls it again with the same keys, so
nothing of the size of the input is saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import native, private_torch
from ..reference import dropout as reference
from ..reference import scalar
from .register import define, operator

LEVELS = reference.LEVELS

_LOW64 = 2**64 - 1


def _in_numpy(
    input: Tensor, keys: Tensor, sizes: Sequence[int], strides: Sequence[int],
    offset: int, threshold: int,
) -> Tensor:  # fmt: skip
    """Zero the elements whose numbers are below ``threshold`` and scale the others.

    The input is cut into as many rows as ``keys``, (n, 2) or (n, 3), has: a third word is the index
    of the first element of its row. Elements along a dimension of stride 0 have one number.
    """
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


@operator(
    "(Tensor(a0!) out, Tensor scope, Tensor count, int name_lo, int name_hi, int index, int "
    "index_step, int row_elements, int rank_field) -> ()"
)
def layer_key(
    out: Tensor, scope: Tensor, count: Tensor, name_lo: int, name_hi: int, index: int,
    index_step: int, row_elements: int, rank_field: int,
) -> None:  # fmt: skip
    """Write a key and the index of the first element, (3,): of a layer, or of a block's draw."""
    lo, hi = scope.tolist()
    name = scalar.name_key((lo, hi), (name_lo & _LOW64, name_hi & _LOW64))
    at = index + int(count) * index_step & _LOW64
    key = scalar.stream_key(name, rank_field, 0, at)
    first = int(count) * row_elements & _LOW64
    out[:] = torch.tensor([key & _LOW64, key >> 64, first], dtype=torch.uint64)


def in_memory_order(found: Tensor, like: Tensor) -> Tensor:
    """Return a contiguous tensor with the strides that torch gives to a result for ``like``."""
    if like.is_contiguous() or private_torch.is_batched(like):
        return found
    return torch.empty_like(like).copy_(found)


def _fake(input: Tensor, *_: object) -> Tensor:
    return torch.empty_like(input)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, keys, *ctx.rest = inputs
    ctx.save_for_backward(keys)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    (keys,) = ctx.saved_tensors
    found = dropout(gradient.contiguous(), keys, *ctx.rest)
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
    return dropout(input.contiguous(), keys, *rest), 0


dropout = define(
    "dropout(Tensor input, Tensor keys, int[] sizes, int[] strides, int offset, int threshold)"
    " -> Tensor",
    _in_numpy,
    _fake,
)
torch.library.register_autograd(
    "fastseed::dropout", _backward, setup_context=_save, lib=native.library
)
torch.library.register_vmap("fastseed::dropout", _batched, lib=native.library)
