"""The registered operators of dropout: ``torch.ops.fastseed.dropout`` and ``layer_key``.

As in ``fastseed._backend.draw_ops``, they are defined here in NumPy where the native library is
missing. ``dropout`` is a function with derivatives of every order: the backward pass calls it again
with the same keys, so nothing of the size of the input is saved.
"""
# Annotations are read at run time: no `from __future__ import annotations` here.

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import draw_ops, native
from .reference import dropout as reference

LEVELS = reference.LEVELS

_OP = "fastseed::dropout"
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def dropout_in_numpy(
    input: Tensor, keys: Tensor, sizes: Sequence[int], strides: Sequence[int],
    offset: int, threshold: int,
) -> Tensor:  # fmt: skip
    """Zero the elements whose numbers are below ``threshold`` and scale the others.

    The input is cut into as many rows as ``keys``, (n, 2) or (n, 3), has: a third word is the index
    of the first element of its row.
    """
    if input.dtype not in _DTYPES:
        raise TypeError(
            "fastseed.dropout: input must be of dtype float16, bfloat16, float32, float64"
        )
    kept = torch.empty(len(keys), input.numel() // max(len(keys), 1), dtype=torch.bool)
    if input.numel():
        grid = (sizes, strides) if sizes else ([kept.size(1)], [1])
        length, starts = draw_ops.runs(*grid)
        for run, start in enumerate(starts):
            for row, (lo, hi, *first) in enumerate(keys.tolist()):
                begin = sum(first, offset + start)
                found = reference.is_kept([lo, hi], begin, length, threshold)
                kept[row, run * length : (run + 1) * length] = torch.from_numpy(found)
    real = torch.float64 if input.dtype == torch.float64 else torch.float32
    scaled = (input.to(real) * reference.scale(threshold)).to(input.dtype)
    stays = torch.where(input.isnan(), input, scaled)
    return torch.where(kept.view(input.shape), stays, torch.zeros_like(input))


def layer_key(
    out: Tensor, scope: Tensor, first_row: Tensor, name_lo: int, name_hi: int, label: int,
    row_elements: int,
) -> None:  # fmt: skip
    """Write the key of a layer and the index of the first element, (3,)."""
    lo, hi = scope.tolist()
    key = reference.layer_key((lo, hi), draw_ops.pair(name_lo, name_hi), label)
    first = int(first_row) * row_elements & 2**64 - 1
    out[:] = torch.tensor([key & 2**64 - 1, key >> 64, first], dtype=torch.uint64)


SCHEMA = (
    "(Tensor input, Tensor keys, int[] sizes, int[] strides, int offset, int threshold) -> Tensor"
)


# ---------------------------------------------------------------- registration


def _fake(input: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(input)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, keys, *ctx.rest = inputs
    ctx.save_for_backward(keys)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    (keys,) = ctx.saved_tensors
    found = torch.ops.fastseed.dropout(gradient.contiguous(), keys, *ctx.rest)
    return found, None, None, None, None, None


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


def _register() -> None:
    schemas = draw_ops.numpy_operator(layer_key, ("out",))
    library = draw_ops.register_operators({"layer_key": schemas[0]}, {"layer_key": schemas[1]}, ())
    if native.kernels is None:
        library.define("dropout" + SCHEMA)
        library.impl("dropout", dropout_in_numpy, "CPU")
    torch.library.register_fake(_OP, _fake, lib=library)
    torch.library.register_autograd(_OP, _backward, setup_context=_save, lib=library)
    torch.library.register_vmap(_OP, _batched, lib=library)


_register()
