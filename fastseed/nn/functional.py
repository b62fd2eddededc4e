"""Dropout as a function of a key: pure, on the device of the input, with derivatives.

Whether element j of the *logical* tensor stays is a function of (key, p, j), which
``docs/spec/dropout.md`` specifies, on whatever rank the element is. No generator is used or
changed, and no mask is kept for the backward pass, which computes it again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from .._backend import dropout_ops, tensors
from .._backend.op_checks import REALS
from .._utils import validation
from ..random import functional as random_functional
from ..random import layout
from ..random.distributions import number
from ..random.functional import Keys
from ..random.layout import Piece, Shard

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_DROPOUT = torch.ops.fastseed.dropout.default
_MOST_DIMS = 8  # of a grid that the operator takes
_LEAST_RUN = 8  # elements of a block
_FUNCTION = "nn.functional.dropout"
_ATTENTION = "nn.functional.scaled_dot_product_attention"


def dropout(
    input: torch.Tensor,
    p: float,
    key: Keys,
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
    if layout.is_dtensor(input):
        return drop_dtensor(_FUNCTION, input, keys, threshold, offset)
    pieces = layout.WHOLE
    if shard is not None:
        pieces = layout.of_shard(_FUNCTION, input.shape, shard)
    return drop(input, keys, pieces, threshold, offset)


def check_input(function: str, input: object, p: object) -> int:
    """Return the threshold for a probability, after checking it and the input."""
    input = tensors.check_dtype_of(function, "input", input, REALS)
    p = check_probability(function, p)
    _check_dense(function, "input", input)
    if not layout.is_dtensor(input):
        random_functional.check_device(function, "input", input.device)
    return threshold_of(p)


def _check_dense(function: str, argument: str, tensor: torch.Tensor) -> None:
    """ValueError for a tensor without elements in memory, or without values."""
    if layout.is_dtensor(tensor):
        return
    if type(tensor) is FakeTensor and type(torch.empty(0)) is not FakeTensor:
        rule = "a tensor with values, outside of the FakeTensorMode that made it"
        raise validation.value_error(function, argument, rule, tensor)
    tensors.check_dense(function, argument, tensor)


def check_probability(function: str, p: object) -> float:
    """Return a probability as a float."""
    found = number(function, "p", p)
    if not 0 <= found <= 1:
        raise validation.value_error(function, "p", "in [0, 1]", found)
    return found


def threshold_of(p: float) -> int:
    """Return how many of 2**16 numbers drop an element: none and all only for p of 0 and 1."""
    if p in (0, 1):
        return int(p) * dropout_ops.LEVELS
    return min(max(round(p * dropout_ops.LEVELS), 1), dropout_ops.LEVELS - 1)


def drop(
    input: torch.Tensor,
    keys: torch.Tensor,
    pieces: list[Piece],
    threshold: int,
    offset: int = 0,
    channels: bool = False,
) -> torch.Tensor:
    """Return the operator's result for the boxes of ``pieces``. Arguments are trusted.

    With ``channels`` the pieces are those of a tensor of the first two dimensions.
    """
    if len(pieces) == 1:
        _, sizes, strides, first = pieces[0]
        return _apply(input, keys, sizes, strides, offset + first, threshold, channels)
    out = torch.zeros_like(input)
    for box, sizes, strides, first in pieces:
        out[box] = _apply(input[box], keys, sizes, strides, offset + first, threshold, channels)
    return out


def _apply(input: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Run the operator, and on the tangent as well: torch drops those of registered operators."""
    dual: Any = forward_ad
    if dual._current_level >= 0:
        primal, tangent = dual.unpack_dual(input)
        if tangent is not None:
            out: torch.Tensor = dual.make_dual(_apply(primal, *rest), _apply(tangent, *rest))
            return out
    return _run(input, *rest)


def _run(
    input: torch.Tensor,
    keys: torch.Tensor,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    first: int,
    threshold: int,
    channels: bool,
) -> torch.Tensor:
    """Return the operator's result, with the strides that torch's dropout gives it."""
    if not input.is_contiguous():
        along = _strides_along(input.shape[:2] if channels else input.shape, sizes, strides)
        order = dropout_ops.memory_order(input)
        moved = input.permute(order)
        if along is not None and moved.is_contiguous() and input.dim() <= _MOST_DIMS:
            along += [0] * (input.dim() - len(along))
            steps = [along[dim] for dim in order]
            if steps[-1] == 1 and moved.size(-1) >= _LEAST_RUN:  # else it is slower than copies
                out: torch.Tensor = _DROPOUT(moved, keys, moved.shape, steps, first, threshold)
                return out.permute(dropout_ops.inverse(order))
    if channels:
        sizes, strides = sizes or (math.prod(input.shape[:2]),), strides or (1,)
        sizes, strides = (*sizes, math.prod(input.shape[2:])), (*strides, 0)
    out = _DROPOUT(input.contiguous(), keys, sizes, strides, first, threshold)
    return dropout_ops.in_memory_order(out, input)


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
    keys: torch.Tensor,
    threshold: int,
    offset: int = 0,
    pieces_of: Callable[..., list[Piece]] = layout.pieces,
    channels: bool = False,
) -> torch.Tensor:
    """Return the result for a ``DTensor``, with the same mesh and placements."""
    layout.check_numel(function, input.shape)
    local, indices = layout.runs_of_dtensor(function, input)
    if local.numel():
        dims = 2 if channels else input.dim()
        pieces = pieces_of(input.shape[:dims], indices[:dims])
        local = drop(local, keys, pieces, threshold, offset, channels)
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
) -> None:
    """Refuse tensors that cannot be attended to, and shapes that do not fit those of ``query``."""
    named = {"query": query, "key": key, "value": value}
    for name, tensor in {**named, "attn_mask": query if attn_mask is None else attn_mask}.items():
        dtypes = (*REALS, torch.bool) if name == "attn_mask" else REALS
        tensors.check_dtype_of(function, name, tensor, dtypes)
        if name in named and tensor.dim() < 2:
            rule = "of shape (..., length, features)"
            raise validation.value_error(function, name, rule, tuple(tensor.shape))
        _check_dense(function, name, tensor)
        if tensor.device != query.device:
            rule = f"on the device of query, {query.device}"
            raise validation.value_error(function, name, rule, tensor.device)
    if key.size(-1) != query.size(-1):
        rule = f"of {query.size(-1)} features, as query"
        raise validation.value_error(function, "key", rule, tuple(key.shape))
    if value.size(-2) != key.size(-2):
        rule = f"of {key.size(-2)} elements along dimension -2, as key"
        raise validation.value_error(function, "value", rule, tuple(value.shape))
    batch = list(query.shape[:-2])
    for name, tensor in (("key", key), ("value", value)):
        shape = list(tensor.shape[:-2])
        if enable_gqa and shape and batch and shape[-1] and batch[-1] % shape[-1] == 0:
            shape[-1] = batch[-1]
        if not _broadcasts(shape, batch):
            rule = f"of the batch and heads of query {tuple(query.shape)}"
            raise validation.value_error(function, name, rule, tuple(tensor.shape))
    weights = [*batch, query.size(-2), key.size(-2)]
    if attn_mask is not None and not _broadcasts(attn_mask.shape, weights):
        rule = f"of a shape that broadcasts to that of the weights, {tuple(weights)}"
        raise validation.value_error(function, "attn_mask", rule, tuple(attn_mask.shape))


def _broadcasts(shape: Sequence[int], other: Sequence[int]) -> bool:
    pairs = zip(reversed(shape), reversed(other), strict=False)
    return all(1 in pair or pair[0] == pair[1] for pair in pairs)


def repeated_heads(tensor: torch.Tensor, query: torch.Tensor, enable_gqa: bool) -> torch.Tensor:
    """Return keys or values with as many heads as the queries have."""
    if not enable_gqa or min(tensor.dim(), query.dim()) < 3 or tensor.size(-3) == query.size(-3):
        return tensor
    return tensor.repeat_interleave(query.size(-3) // tensor.size(-3), -3)


def attention_weights(
    query: torch.Tensor,
    key: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return softmax(query key^T * scale + mask), as torch documents it for its function.

    Scores of 16-bit types are computed in float32, also under autocast, which would round them.
    """
    key = repeated_heads(key, query, enable_gqa)
    with _without_autocast(query.device.type):
        scores = _wide(query) @ _wide(key).transpose(-2, -1)
        scores = scores * (max(query.size(-1), 1) ** -0.5 if scale is None else scale)
        if is_causal:
            causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~causal, -math.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        if attn_mask is None:
            return scores.softmax(-1).to(query.dtype)
        nothing = (scores == -math.inf).all(-1, keepdim=True)  # a row without anything is 0
        weights = scores.masked_fill(nothing, 0.0).softmax(-1)
        return weights.masked_fill(nothing, 0.0).to(query.dtype)


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
    dropout_key: Keys,
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
        scale = number(_ATTENTION, "scale", scale)
    check_attention(_ATTENTION, query, key, value, attn_mask, enable_gqa)
    weights = attention_weights(query, key, attn_mask, is_causal, scale, enable_gqa)
    weights = dropout(weights, dropout_p, dropout_key, shard=shard)
    return weights @ repeated_heads(value, query, enable_gqa)
