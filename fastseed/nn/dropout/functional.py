"""Dropout as a function of a key: pure, on the device of the input, with derivatives.

Whether element j of the *logical* tensor stays is a function of (key, p, j), which
``docs/spec/dropout.md`` specifies, on whatever rank the element is. No generator is used or
changed, and no mask is kept for the backward pass, which computes it again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd import forward_ad

from ..._backend import private_torch, tensors
from ..._backend.ops import dropout as dropout_op
from ..._backend.ops.draws import REALS
from ..._utils import validation
from ...random import functional as random_functional
from ...random import layout
from ...random.distributions import check_real
from ...random.functional import Key
from ...random.layout import Piece, Shard

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_MOST_DIMS = 8  # of a grid that the operator takes
_LEAST_RUN = 8  # elements of a block
_FUNCTION = "nn.functional.dropout"
_ATTENTION = "nn.functional.scaled_dot_product_attention"


class Mask(NamedTuple):
    """Which elements the operator drops: its arguments behind the input."""

    keys: torch.Tensor  # (1, 2), or (1, 3) with the index of the first element
    sizes: Sequence[int]  # of the grid of the elements; empty for one run
    strides: Sequence[int]
    offset: int
    threshold: int


def dropout(
    input: torch.Tensor,
    p: float,
    key: Key,
    *,
    training: bool = True,
    offset: int = 0,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Zero each element with probability ``p`` and scale the others by 1 / (1 - p).

    Args:
        input: float16, bfloat16, float32 or float64, of any strides; a ``DTensor`` with placements
            Replicate and Shard.
        p: the probability of a zero, in [0, 1]; rounded to a multiple of 2**-16, also in the
            scale, but to neither 0 nor 1.
        key: a 128-bit integer, or (2,) torch.uint64 on the device of ``input``.
        training: False returns ``input`` itself.
        offset: the index of the first element in the logical tensor, [0, 2**53].
        shard: which part of a larger tensor ``input`` is; None for a ``DTensor``, which says so.

    Returns:
        A new tensor with the strides that torch's dropout gives it (channels_last stays so), or a
        ``DTensor`` with the placements of ``input``; ``input`` itself where ``p`` is 0 or
        ``training`` is False.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> import torch
        >>> fastseed.nn.functional.dropout(torch.ones(6), 0.5, 42)
        tensor([2., 2., 0., 2., 0., 0.])
        >>> fastseed.nn.functional.dropout(torch.ones(3), 0.5, 42, offset=3)
        tensor([2., 0., 0.])
    """
    threshold = check_input(_FUNCTION, input, p)
    validation.check_bool(_FUNCTION, "training", training)
    offset = validation.check_int(_FUNCTION, "offset", offset, 0, layout.MAX_NUMEL)
    if shard is not None and layout.is_dtensor(input):
        rule = "None for a DTensor, which records its part"
        raise validation.value_error(_FUNCTION, "shard", rule, shard)
    if not training or threshold == 0:
        return input
    device = input.device
    keys = random_functional.check_keys(_FUNCTION, "key", key, device)
    if keys.dim() != 1:
        raise validation.value_error(_FUNCTION, "key", "of shape (2,)", tuple(keys.shape))
    keys = keys.to(device).contiguous().view(1, 2)
    mask = Mask(keys, (), (), offset, threshold)
    if layout.is_dtensor(input):
        return drop_dtensor(_FUNCTION, input, mask)
    pieces = layout.WHOLE
    if shard is not None:
        pieces = layout.of_shard(_FUNCTION, input.shape, shard)
    return drop(input, mask, pieces)


def check_input(function: str, input: object, p: object) -> int:
    """Return the threshold for a probability, after checking it and the input."""
    input = tensors.check_dtype(function, "input", input, *REALS)
    p = check_probability(function, p)
    _check_dense(function, "input", input)
    if not layout.is_dtensor(input):
        random_functional.check_device(function, "input", input.device)
    return threshold_of(p)


def _check_dense(function: str, argument: str, tensor: torch.Tensor) -> None:
    """ValueError for a tensor without elements in memory, or without values."""
    if layout.is_dtensor(tensor):
        return
    if private_torch.is_fake(tensor) and not private_torch.is_fake(torch.empty(0)):
        rule = "a tensor with values, outside of the FakeTensorMode that made it"
        raise validation.value_error(function, argument, rule, tensor)
    tensors.check_dense(function, argument, tensor)


def check_probability(function: str, p: object) -> float:
    """Return a probability as a float."""
    found = check_real(function, "p", p)
    if not 0 <= found <= 1:
        raise validation.value_error(function, "p", "in [0, 1]", found)
    return found


def threshold_of(p: float) -> int:
    """Return how many of 2**16 numbers drop an element: none and all only for p of 0 and 1."""
    if p in (0, 1):
        return int(p) * dropout_op.LEVELS
    return min(max(round(p * dropout_op.LEVELS), 1), dropout_op.LEVELS - 1)


def drop(
    input: torch.Tensor, mask: Mask, pieces: list[Piece], channels: bool = False
) -> torch.Tensor:
    """Return the operator's result for the boxes of ``pieces``. Arguments are trusted.

    With ``channels`` the pieces are those of a tensor of the first two dimensions.
    """
    keys, _, _, offset, threshold = mask
    if len(pieces) == 1:
        _, sizes, strides, first = pieces[0]
        return _apply(input, Mask(keys, sizes, strides, offset + first, threshold), channels)
    out = torch.zeros_like(input)
    for box, sizes, strides, first in pieces:
        part = Mask(keys, sizes, strides, offset + first, threshold)
        out[box] = _apply(input[box], part, channels)
    return out


def _apply(input: torch.Tensor, mask: Mask, channels: bool) -> torch.Tensor:
    """Run the operator, and on the tangent as well: torch drops those of registered operators."""
    if private_torch.has_tangents():
        dual: Any = forward_ad
        primal, tangent = dual.unpack_dual(input)
        if tangent is not None:
            parts = _apply(primal, mask, channels), _apply(tangent, mask, channels)
            out: torch.Tensor = dual.make_dual(*parts)
            return out
    return _run(input, mask, channels)


def _run(input: torch.Tensor, mask: Mask, channels: bool) -> torch.Tensor:
    """Return the operator's result, with the strides that torch's dropout gives it."""
    keys, sizes, strides, *rest = mask
    if not input.is_contiguous():
        along = _strides_along(input.shape[:2] if channels else input.shape, sizes, strides)
        order = dropout_op.memory_order(input)
        moved = input.permute(order)
        if along is not None and moved.is_contiguous() and input.dim() <= _MOST_DIMS:
            along += [0] * (input.dim() - len(along))
            steps = [along[dim] for dim in order]
            if steps[-1] == 1 and moved.size(-1) >= _LEAST_RUN:  # else it is slower than copies
                out: torch.Tensor = dropout_op.dropout(moved, keys, moved.shape, steps, *rest)
                return out.permute(dropout_op.inverse(order))
    if channels:
        sizes, strides = sizes or (math.prod(input.shape[:2]),), strides or (1,)
        sizes, strides = (*sizes, math.prod(input.shape[2:])), (*strides, 0)
    out = dropout_op.dropout(input.contiguous(), keys, sizes, strides, *rest)
    return dropout_op.in_memory_order(out, input)


def _strides_along(
    shape: Sequence[int], sizes: Sequence[int], strides: Sequence[int]
) -> list[int] | None:
    """Return a grid's strides for each dimension of ``shape``; None if a dimension has two."""
    axes = list(zip(sizes, strides, strict=True)) or [(math.prod(shape), 1)]
    along: list[int] = []
    left, step = axes.pop()
    for size in reversed(shape):
        while left == 1 and size > 1 and axes:
            left, step = axes.pop()
        if size == 0 or left % size:
            return None
        along.insert(0, step)
        left, step = left // size, step * size
    return along


def drop_dtensor(
    function: str,
    input: DTensor,
    mask: Mask,
    pieces_of: Callable[..., list[Piece]] = layout.pieces,
    channels: bool = False,
) -> torch.Tensor:
    """Return the result for a ``DTensor``, with the same mesh and placements."""
    layout.check_numel(function, input.shape)
    local, indices = layout.runs_of_dtensor(function, input)
    if local.numel():
        dims = 2 if channels else input.dim()
        pieces = pieces_of(input.shape[:dims], indices[:dims])
        local = drop(local, mask, pieces, channels)
    whole = torch.empty_strided(input.shape, input.stride(), device="meta")
    return type(input).from_local(
        local, input.device_mesh, input.placements, run_check=False,
        shape=input.shape, stride=torch.empty_like(whole).stride(),
    )  # fmt: skip


def check_attention(
    function: str,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    enable_gqa: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values with as many heads as the queries have; refuse what does not fit."""
    given = [query, key, value] if attn_mask is None else [query, key, value, attn_mask]
    for name, tensor in zip(("query", "key", "value", "attn_mask"), given, strict=False):
        dtypes = (*REALS, torch.bool) if name == "attn_mask" else REALS
        _check_dense(function, name, tensors.check_dtype(function, name, tensor, *dtypes))
    fits = min(tensor.dim() for tensor in given[:3]) > 1 and len({t.device for t in given}) == 1
    if fits and enable_gqa:
        key, value = _repeated_heads(key, query), _repeated_heads(value, query)
    if fits:
        fits = key.size(-1) == query.size(-1) and value.size(-2) == key.size(-2)
        fits = fits and _broadcast(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        if attn_mask is not None:
            fits = fits and _broadcast(attn_mask.shape, (*query.shape[:-1], key.size(-2)))
    if not fits:
        rule = "query, key, value and attn_mask of one attention, on one device"
        shapes = [(tuple(tensor.shape), str(tensor.device)) for tensor in given]
        raise validation.value_error(function, "tensors", rule, shapes)
    return key, value


def _broadcast(*shapes: Sequence[int]) -> bool:
    try:
        torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


def _repeated_heads(tensor: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    if min(tensor.dim(), query.dim()) < 3 or tensor.size(-3) in (0, query.size(-3)):
        return tensor
    return tensor.repeat_interleave(query.size(-3) // tensor.size(-3), -3)


def attention_weights(
    query: torch.Tensor,
    key: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Return softmax(query key^T * scale + mask), as torch documents it for its function.

    Scores of 16-bit types are computed in float32, also under autocast, which would round them.
    """
    with _without_autocast(query.device.type):
        scores = _wide(query) @ _wide(key).transpose(-2, -1)
        scores = scores * (max(query.size(-1), 1) ** -0.5 if scale is None else scale)
        if is_causal:
            above = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(_as(scores, above), -math.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        if attn_mask is None:
            return scores.softmax(-1).to(query.dtype)
        nothing = (scores == -math.inf).all(-1, keepdim=True)  # a row without anything is 0
        weights = scores.masked_fill(nothing, 0.0).softmax(-1)
        return weights.masked_fill(nothing, 0.0).to(query.dtype)


def _as(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return a mask that every rank has, as a ``DTensor`` where the scores are one."""
    if not layout.is_dtensor(scores):
        return mask
    from torch.distributed.tensor import DTensor, Replicate

    mesh = scores.device_mesh
    return DTensor.from_local(mask, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _without_autocast(device_type: str) -> contextlib.AbstractContextManager[object]:
    # torch.compile of torch 2.10 cannot trace the question
    if torch.compiler.is_compiling() or torch.amp.is_autocast_available(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()  # a meta tensor, for example


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    dropout_key: Key,
    scale: float | None = None,
    enable_gqa: bool = False,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Return attention whose weights are dropped by a key: the weights are computed in full.

    Args:
        query: (..., heads, L, E).
        key: (..., heads, S, E).
        value: (..., heads, S, V).
        attn_mask: None, torch.bool (True: takes part) or added to the scores; broadcast to
            (..., heads, L, S).
        dropout_p: the probability with which a weight becomes zero, [0, 1].
        is_causal: mask what lies above the diagonal.
        dropout_key: a 128-bit integer, or (2,) torch.uint64 on the device of ``query``.
        scale: the factor of the scores. None: 1 / sqrt(E).
        enable_gqa: repeat the heads of ``key`` and ``value`` to those of ``query``.
        shard: which part of the whole weights, (..., heads, L, S), these are.

    Returns:
        (..., heads, L, V).

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> import torch
        >>> x = torch.ones(1, 1, 2, 4)
        >>> fastseed.nn.functional.scaled_dot_product_attention(
        ...     x, x, x, dropout_p=0.5, dropout_key=42
        ... )[0, 0, :, 0]
        tensor([2., 1.])
    """
    is_causal = validation.check_bool(_ATTENTION, "is_causal", is_causal)
    enable_gqa = validation.check_bool(_ATTENTION, "enable_gqa", enable_gqa)
    if scale is not None:
        scale = check_real(_ATTENTION, "scale", scale)
    key, value = check_attention(_ATTENTION, query, key, value, attn_mask, enable_gqa)
    weights = attention_weights(query, key, attn_mask, is_causal, scale)
    return dropout(weights, dropout_p, dropout_key, shard=shard) @ value
