"""Dropout as a function of a key: pure, on the device of the input, with derivatives.

Whether element j of the *logical* tensor stays is a function of (key, p, j), which
``docs/spec/dropout.md`` specifies. The backward pass computes the mask again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd import forward_ad

from .._backend import private_torch, tensors
from .._backend.ops import dropout as dropout_op
from .._backend.ops.draws import REALS
from .._utils import validation
from . import functional, layout
from .distributions import check_real
from .dropout_calls import HEADS
from .functional import Key
from .layout import Piece, Shard

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

DropWeights = Callable[[torch.Tensor], torch.Tensor]
_FUNCTION = "nn.functional.dropout"


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
        A new tensor with the strides that torch's dropout gives it, or a ``DTensor`` with the
        placements of ``input``; ``input`` itself where ``p`` is 0 or ``training`` is False.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> import torch
        >>> fastseed.nn.functional.dropout(torch.ones(6), 0.5, 42)
        tensor([2., 2., 0., 2., 0., 0.])
    """
    threshold = check_input(_FUNCTION, input, p)
    validation.check_bool(_FUNCTION, "training", training)
    offset = validation.check_int(_FUNCTION, "offset", offset, 0, layout.MAX_NUMEL)
    if not training or threshold == 0:
        return input
    keys = functional.key_on(_FUNCTION, "key", key, input.device)
    mask = Mask(keys, (), (), offset, threshold)
    if shard is None and layout.is_dtensor(input):
        return drop_dtensor(_FUNCTION, input, mask)
    return drop(input, mask, layout.of_tensor(_FUNCTION, input, shard)[1])


def check_input(function: str, input: object, p: object) -> int:
    """Return the threshold for a probability, after checking it and the input."""
    input = tensors.check_dtype(function, "input", input, *REALS)
    p = check_probability(function, p)
    if not layout.is_dtensor(input):
        tensors.check_dense(function, "input", input)
    tensors.check_supported(function, "input", input.device)
    return threshold_of(p)


def check_probability(function: str, p: object) -> float:
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
    """Return the result for ``pieces``: with ``channels``, of the first two dimensions."""
    keys, _, _, offset, threshold = mask
    out = input if len(pieces) == 1 else torch.zeros_like(input)
    for box, sizes, strides, first in pieces:
        part = Mask(keys, sizes, strides, offset + first, threshold)
        if len(pieces) == 1:
            return _apply(input, part, channels)
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
    keys, sizes, strides, *rest = mask
    if channels:
        sizes, strides = sizes or (math.prod(input.shape[:2]),), strides or (1,)
        sizes, strides = (*sizes, math.prod(input.shape[2:])), (*strides, 0)
    out = dropout_op.dropout(input.contiguous(), keys, sizes, strides, *rest)
    return dropout_op.in_memory_order(out, input)


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


def attend(
    function: str,
    drop_weights: DropWeights,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return softmax(query key^T * scale + mask), dropped, times value, as torch documents it."""
    if attn_mask is not None:
        tensors.check_dtype(function, "attn_mask", attn_mask, torch.bool, *REALS)
    if enable_gqa:
        key, value = _repeated_heads(key, query), _repeated_heads(value, query)
    with _without_autocast(query.device.type):  # which would round the scores
        scores = _wide(query) @ _wide(key).transpose(-2, -1)
        scores = scores * (max(query.size(-1), 1) ** -0.5 if scale is None else scale)
        if is_causal:
            scores = scores.masked_fill(_above_diagonal(scores), -math.inf)
        if attn_mask is not None:
            is_bool = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -math.inf) if is_bool else scores + attn_mask
            nothing = (scores == -math.inf).all(-1, keepdim=True)  # a row without anything is 0
            weights = scores.masked_fill(nothing, 0.0).softmax(-1).masked_fill(nothing, 0.0)
        else:
            weights = scores.softmax(-1)
        weights = weights.to(query.dtype)
    return drop_weights(weights) @ value


class _Heads:
    """Stands for the probability in a call of ``HEADS``, and brings along what drops."""

    def __init__(self, function: str, drop_weights: DropWeights, heads: int) -> None:
        self.function, self.drop_weights, self.heads = function, drop_weights, heads

    def __gt__(self, other: object) -> bool:  # any other use of it as a number is an error
        return True


def _drop_heads(weights: torch.Tensor, p: _Heads) -> torch.Tensor:
    whole = weights.view(weights.size(0) // p.heads, p.heads, *weights.shape[1:])
    return p.drop_weights(whole).view(weights.shape)


def _attend_heads(*args: Any) -> torch.Tensor:
    query, key, value, attn_mask, p, is_causal = args
    return attend(p.function, p.drop_weights, query, key, value, attn_mask, is_causal)


_HEADS: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] = private_torch.with_names(
    HEADS,
    has_torch_function=lambda _: False,
    dropout=_drop_heads,
    scaled_dot_product_attention=_attend_heads,
)


def attend_heads(
    function: str, drop_weights: DropWeights, num_heads: int, **arguments: Any
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Do what ``HEADS`` does in training, whose weights (N, heads, L, S) a function drops."""
    p = _Heads(function, drop_weights, num_heads)
    return _HEADS(**arguments, num_heads=num_heads, dropout_p=p)


def _repeated_heads(tensor: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    if min(tensor.dim(), query.dim()) < 3 or tensor.size(-3) in (0, query.size(-3)):
        return tensor
    return tensor.repeat_interleave(query.size(-3) // tensor.size(-3), -3)


def _above_diagonal(scores: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
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
