"""What a key writes in place of each random operator of torch, into a tensor or a ``DTensor``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..._backend import derive, tensors
from ..._backend.ops.draws import REALS
from ..._utils import validation
from ...random import bits, inplace, layout
from ...random.functional import check_device
from .names import local_part

if TYPE_CHECKING:
    from torch._ops import OpOverload

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Fill = Callable[..., object]
"""A function of a tensor, a key and parameters that writes random numbers."""

_ATEN = torch.ops.aten
_FUNCTION = "nn.initialize"


def _uniform(tensor: torch.Tensor, key: int, low: float = 0.0, high: float = 1.0) -> None:
    """Fill as ``uniform_`` does; with ``low`` where both bounds are equal, as torch does."""
    if low != high or tensor.dtype not in REALS:
        inplace.uniform_(tensor, key, low, high)
        return
    _check_memory(tensor)
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.fill_(low + 0.0)  # no negative zero


def _randint(tensor: torch.Tensor, key: int, low: int = 0, high: int | None = None) -> None:
    inplace.randint_(tensor, key, low, torch.iinfo(tensor.dtype).max + 1 if high is None else high)


def orthogonal_(tensor: torch.Tensor, key: int, gain: float = 1.0) -> None:
    """Fill a weight with a (semi-)orthogonal matrix, times ``gain``; ranks compute all of it."""
    _check_tensor(tensor, REALS, (2, 64), "a tensor of 2 dimensions or more")
    most = sys.float_info.max
    gain = validation.check_float(_FUNCTION, "gain", gain, -most, most)
    if tensor.numel() == 0:
        return
    rows = tensor.size(0)
    flat = torch.empty(rows, tensor.numel() // rows, dtype=torch.float64, device="cpu")
    inplace.normal_(flat, key)
    q, r = torch.linalg.qr(flat if rows >= flat.size(1) else flat.T)
    q = q * r.diagonal().sign() * gain  # the diagonal of R positive (Mezzadri, 2007)
    keep_part(tensor, q if rows >= flat.size(1) else q.T)


def sparse_(tensor: torch.Tensor, key: int, sparsity: float, std: float = 0.01) -> None:
    """Fill a matrix with normal numbers, and zeros where a column has the smallest words."""
    _check_tensor(tensor, REALS, (2, 2), "a matrix")
    part = validation.check_float(_FUNCTION, "sparsity", sparsity, 0, 1)
    std = validation.check_float(_FUNCTION, "std", std, 0, sys.float_info.max)
    if tensor.numel() == 0:
        return
    after = 2 * tensor.numel()  # more words than the numbers take, in any dtype
    words = bits(key, tuple(tensor.shape), dtype=torch.uint64, position=after)
    signed = words.view(torch.int64) ^ torch.iinfo(torch.int64).min  # in the order of the words
    chosen = signed.argsort(dim=0, stable=True)[: math.ceil(part * tensor.size(0))]
    zero = torch.zeros_like(words, dtype=torch.bool).scatter_(0, chosen, value=True)
    inplace.normal_(tensor, key, 0.0, std)
    keep_part(tensor, zero, as_zeros=True)


def _randperm(tensor: torch.Tensor, key: int) -> None:
    """Fill a vector with the order of n samples that ``docs/spec/derivation.md`` specifies."""
    _check_tensor(tensor, (torch.int64,), (1, 1), "a vector")
    whole = torch.empty(tensor.numel(), dtype=torch.int64, device="cpu")
    if len(whole):
        derive.fill_shuffle(whole, key, len(whole), 0, 1)
        keep_part(tensor, whole)


def _check_tensor(
    tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...], dimensions: tuple[int, int], rule: str
) -> None:
    """Check dtype and dimensions of an output, from and to; ``rule`` names these."""
    tensors.check_dtype(_FUNCTION, "tensor", tensor, *dtypes)
    if not dimensions[0] <= tensor.dim() <= dimensions[1]:
        raise validation.value_error(_FUNCTION, "tensor", rule, tensor)


def _check_memory(tensor: torch.Tensor) -> None:
    local = local_part(tensor)
    check_device(_FUNCTION, "tensor", local.device)
    tensors.check_dense(_FUNCTION, "tensor", local)
    tensors.check_writable(_FUNCTION, "tensor", local)


def keep_part(tensor: torch.Tensor, whole: torch.Tensor, as_zeros: bool = False) -> torch.Tensor:
    """Write what ``tensor`` holds of ``whole``, or zeros where that is True."""
    _check_memory(tensor)
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        local, pieces = layout.of_tensor(_FUNCTION, tensor)
        flat = whole.reshape(-1)
        for box, sizes, strides, offset in pieces:
            view = local[box] if box else local
            part = flat[offset : offset + view.numel()]
            if sizes:
                part = flat.as_strided(sizes, strides, offset)
            part = part.reshape(view.shape).to(view.device)
            view.masked_fill_(part, 0) if as_zeros else view.copy_(part)
        if local is not tensor and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
    return tensor


def _given(_: OpOverload, args: Arguments, kwargs: Keywords) -> Arguments:
    return args


def _out(_: OpOverload, args: Arguments, kwargs: Keywords) -> Arguments | None:
    out = kwargs["out"]
    return (out,) if args[0] == out.numel() else None


def _new(func: OpOverload, args: Arguments, kwargs: Keywords) -> Arguments:
    """Return an uninitialized tensor like the one that the operator would make."""
    options = {k: kwargs[k] for k in ("dtype", "device") if kwargs.get(k) is not None}
    if isinstance(args[0], torch.Tensor):
        return (torch.empty_like(args[0], **options),)
    if func is _ATEN.randperm.default:
        options.setdefault("dtype", torch.int64)
    return (torch.empty(args[0], **options),)


FILLS: dict[object, tuple[Fill, Callable[..., Arguments | None]]] = {
    _ATEN.normal_.default: (inplace.normal_, _given),
    _ATEN.uniform_.default: (_uniform, _given),
    _ATEN.exponential_.default: (inplace.exponential_, _given),
    _ATEN.bernoulli_.float: (inplace.bernoulli_, _given),
    _ATEN.random_.default: (_randint, _given),
    getattr(_ATEN.random_, "from"): (_randint, _given),
    _ATEN.random_.to: (lambda tensor, key, high: _randint(tensor, key, 0, high), _given),
    _ATEN.randperm.out: (_randperm, _out),
    _ATEN.randperm.generator_out: (_randperm, _out),
    _ATEN.randperm.default: (_randperm, _new),
    _ATEN.randn.default: (inplace.normal_, _new),
    _ATEN.rand.default: (inplace.uniform_, _new),
    _ATEN.randn_like.default: (inplace.normal_, _new),
    _ATEN.rand_like.default: (inplace.uniform_, _new),
}
"""Operators, what a key fills in place of each, and what finds the tensor and the parameters."""

INITIALIZERS: dict[str, Fill] = {
    "trunc_normal_": inplace.trunc_normal_,
    "orthogonal_": orthogonal_,
    "sparse_": sparse_,
}
"""Functions of ``torch.nn.init`` that compute with random numbers in Python."""
