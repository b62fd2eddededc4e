"""The table of torch's random operators, and fills of functions of ``torch.nn.init``."""

from __future__ import annotations

import math
import sys

import torch

from ..._backend import tensors
from ..._backend.ops.draws import DRAW, REALS
from ..._utils import validation
from ...random import functional, inplace
from ...random.fills import Fill, keep_part, randint, randperm, uniform

_ATEN = torch.ops.aten
_FUNCTION = "nn.initialize"


def _check_tensor(tensor: torch.Tensor, dimensions: tuple[int, int], rule: str) -> None:
    """Check dtype and dimensions of a weight, from and to; ``rule`` names these."""
    tensors.check_dtype(_FUNCTION, "tensor", tensor, *REALS)
    if not dimensions[0] <= tensor.dim() <= dimensions[1]:
        raise validation.value_error(_FUNCTION, "tensor", rule, tensor)


def orthogonal_(tensor: torch.Tensor, key: int, gain: float = 1.0) -> None:
    """Fill a weight with a (semi-)orthogonal matrix, times ``gain``; ranks compute all of it."""
    _check_tensor(tensor, (2, 64), "a tensor of 2 dimensions or more")
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
    _check_tensor(tensor, (2, 2), "a matrix")
    part = validation.check_float(_FUNCTION, "sparsity", sparsity, 0, 1)
    std = validation.check_float(_FUNCTION, "std", std, 0, sys.float_info.max)
    if tensor.numel() == 0:
        return
    words = torch.empty(tensor.shape, dtype=torch.uint64, device="cpu")
    keys = functional.check_keys(_FUNCTION, "key", key, words.device).view(1, 2)
    # behind more words than the numbers take, in any dtype
    position = torch.full((1,), 2 * tensor.numel(), dtype=torch.int64, device="cpu")
    DRAW["bits"](words, keys, position, (), (), 0)
    signed = words.view(torch.int64) ^ torch.iinfo(torch.int64).min  # in the order of the words
    chosen = signed.argsort(dim=0, stable=True)[: math.ceil(part * tensor.size(0))]
    zero = torch.zeros_like(words, dtype=torch.bool).scatter_(0, chosen, value=True)
    inplace.normal_(tensor, key, 0.0, std)
    keep_part(tensor, zero, as_zeros=True)


FILLS: dict[object, Fill] = {
    _ATEN.normal_.default: inplace.normal_,
    _ATEN.uniform_.default: uniform,
    _ATEN.exponential_.default: inplace.exponential_,
    _ATEN.bernoulli_.float: inplace.bernoulli_,
    _ATEN.random_.default: randint,
    getattr(_ATEN.random_, "from"): randint,
    _ATEN.random_.to: lambda tensor, key, high: randint(tensor, key, 0, high),
    _ATEN.randperm.out: randperm,
    _ATEN.randperm.generator_out: randperm,
}
"""Operators, and what a key fills in place of each."""

INITIALIZERS: dict[str, Fill] = {
    "trunc_normal_": inplace.trunc_normal_,
    "orthogonal_": orthogonal_,
    "sparse_": sparse_,
}
"""Functions of ``torch.nn.init`` that compute with random numbers in Python."""
