"""What a key writes in place of each random operator of torch, into a tensor or a ``DTensor``.

``FILLS`` is the one table, for ``random.keyed`` and ``nn.initialize``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch

from .._backend import derive, tensors
from .._backend.ops.draws import DRAW, REALS
from .._backend.ops.shuffle import shuffle_of_key
from .._utils import validation
from . import inplace, layout
from .distributions import FORMATS, INTEGERS, check_real
from .functional import Key, check_keys
from .layout import Shard

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Fill = Callable[..., object]
"""A function of a tensor, a key and parameters that writes random numbers; False: it drew none."""

_FUNCTION, _INITIALIZE = "random.keyed", "nn.initialize"


def normal(tensor: torch.Tensor, key: Key, mean: float = 0.0, std: float = 1.0) -> None:
    """Fill as ``normal_`` does: of a complex number each part has half the variance."""
    if tensor.is_complex():
        _in_parts(inplace.normal_, tensor, key, mean, std / math.sqrt(2))
    else:
        inplace.normal_(tensor, key, mean, std)


def uniform(tensor: torch.Tensor, key: Key, low: float = 0.0, high: float = 1.0) -> bool:
    """Fill as ``uniform_`` does; with ``low`` where both bounds are equal, as torch does."""
    if tensor.is_complex():
        _in_parts(uniform, tensor, key, low, high)
        return low != high
    if low != high or tensor.dtype not in REALS:
        inplace.uniform_(tensor, key, low, high)
        return True
    tensors.check_memory("random.uniform_", "tensor", layout.local_part(tensor))
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.fill_(low + 0.0)  # no negative zero
    return False


def fill_part(
    fill: Fill, tensor: torch.Tensor, key: Key, shard: Shard, *parameters: Any, **named: Any
) -> None:
    """Fill the part of a larger tensor that ``tensor`` is."""
    is_constant = fill is uniform and len({*parameters}) == 1
    if fill in _OF_PARTS and not tensor.is_complex() and not is_constant:
        _OF_PARTS[fill](tensor, key, *parameters, shard=shard, **named)
        return
    whole = torch.empty(tuple(shard.global_shape), dtype=tensor.dtype, device=tensor.device)
    fill(whole, key, *parameters, **named)
    keep_part(tensor, whole, shard=shard)


_OF_PARTS: dict[Fill, Fill] = {
    normal: inplace.normal_,
    uniform: inplace.uniform_,
    **{fill: fill for fill in (inplace.exponential_, inplace.trunc_normal_)},
}


def _in_parts(fill: Fill, tensor: torch.Tensor, key: Key, *parameters: float) -> None:
    """Fill a complex tensor as a real one with one more dimension."""
    parts = torch.empty_like(torch.view_as_real(tensor))
    fill(parts, key, *parameters)
    write(tensor, torch.view_as_complex(parts))


def randint(tensor: torch.Tensor, key: Key, low: int = 0, high: int | None = None) -> None:
    """Fill as ``random_`` does: up to the largest integer of the dtype where no bound is given."""
    high = _end(tensor.dtype) if high is None else high
    if tensor.dtype in INTEGERS:
        inplace.randint_(tensor, key, low, high)
        return
    whole = torch.empty_like(tensor, dtype=torch.int64)
    inplace.randint_(whole, key, low, high)
    least, most = 0, 1
    if tensor.dtype != torch.bool:
        info = (torch.finfo if tensor.is_floating_point() else torch.iinfo)(tensor.dtype)
        least, most = int(info.min), int(info.max)
    if not least <= low < high <= most + 1:
        rule = f"in [{least}, {most}] for {tensor.dtype}"
        raise validation.value_error("random.randint_", "low and high - 1", rule, (low, high - 1))
    write(tensor, whole)


def _end(dtype: torch.dtype) -> int:
    """Return the end of the integers from 0 on that a dtype holds, all of them."""
    if dtype in FORMATS:
        return (1 << FORMATS[dtype][0]) + 1
    return 2 if dtype == torch.bool else torch.iinfo(dtype).max + 1


def bernoulli(tensor: torch.Tensor, key: Key, p: float | torch.Tensor = 0.5) -> None:
    """Fill as ``bernoulli_`` does; a tensor of probabilities is rounded as one number is."""
    if not isinstance(p, torch.Tensor):
        if tensor.dtype in (torch.bool, torch.uint8, *REALS):
            inplace.bernoulli_(tensor, key, p)
        else:
            write(tensor, inplace.bernoulli_(torch.empty_like(tensor, dtype=torch.bool), key, p))
        return
    p = p.detach().double()
    _check_values("p", p, lambda p: (p >= 0) & (p <= 1), "in [0, 1]")
    words = inplace.bits_(torch.empty_like(tensor, dtype=torch.uint32), key)
    write(tensor, words.double() < (p * 2.0**32).round())


def geometric(tensor: torch.Tensor, key: Key, p: float) -> None:
    """Fill as ``geometric_`` does: by the exponential number that an interval of p belongs to."""
    p = check_real(_FUNCTION, "p", p)
    if not 0 < p < 1:
        raise validation.value_error(_FUNCTION, "p", "in (0, 1)", p)
    drawn = _doubles(tensor)
    inplace.exponential_(drawn, key)
    write(tensor, (drawn * (-1 / math.log1p(-p))).floor() + 1)


def cauchy(tensor: torch.Tensor, key: Key, median: float = 0.0, sigma: float = 1.0) -> None:
    """Fill as ``cauchy_`` does: by the ratio of two normal numbers."""
    tensors.check_dtype(_FUNCTION, "tensor", tensor, *REALS)
    if not check_real(_FUNCTION, "sigma", sigma) > 0:
        raise validation.value_error(_FUNCTION, "sigma", "above 0", sigma)
    pairs = _doubles(tensor.detach().unsqueeze(-1).expand(*tensor.shape, 2))
    inplace.normal_(pairs, key)
    ratios = pairs[..., 0] / pairs[..., 1]
    write(tensor, ratios * sigma + median)


def log_normal(tensor: torch.Tensor, key: Key, mean: float = 1.0, std: float = 2.0) -> None:
    """Fill as ``log_normal_`` does, by an exponential function that is the same on all devices."""
    tensors.check_dtype(_FUNCTION, "tensor", tensor, *REALS)
    drawn = _doubles(tensor)
    inplace.normal_(drawn, key, mean, std)
    local = layout.local_part(drawn)
    local.copy_(_exp(local))
    write(tensor, drawn)


_LN2 = (0.6931471805598903, 5.497923018708371e-14)  # a sum, whose first part has 42 bits
_EXP = [1 / math.factorial(n) for n in range(13, -1, -1)]


def _exp(x: torch.Tensor) -> torch.Tensor:
    """Return e**x by the series of its fractional part: torch's differs between devices."""
    x = x.clamp(-746.0, 710.0)
    n = (x * (1 / math.log(2))).round()
    part = x - n * _LN2[0] - n * _LN2[1]
    found = torch.zeros_like(part)
    for coefficient in _EXP:
        found = found * part + coefficient
    half = (n / 2).floor()
    for exponent in (half, n - half):  # in two steps, for numbers below the smallest normal one
        found = found * ((exponent.long() + 1023) << 52).view(torch.float64)
    return found


def scaled(tensor: torch.Tensor, key: Key, mean: object, std: object) -> None:
    """Fill as ``torch.normal`` does where ``mean`` or ``std`` is a tensor."""
    means, stds = (
        v.detach().double() if isinstance(v, torch.Tensor) else check_real(_FUNCTION, name, v)
        for name, v in (("mean", mean), ("std", std))
    )
    values = torch.as_tensor(stds, device=tensor.device)
    _check_values("std", values, lambda std: std >= 0, "0 or more")
    inplace.normal_(tensor, key)
    write(tensor, tensor.double() * stds + means)


def multinomial(
    tensor: torch.Tensor, key: Key, weights: torch.Tensor, replacement: bool = False
) -> None:
    """Fill as ``multinomial`` does, by sums of integers or a race without arithmetic to reorder.

    With replacement, weights are rounded up to multiples of 2**(ceil(log2 n) - 52) of the largest.
    Without it, categories are in the order of weight / exponential number, largest first.
    """
    weights = weights.detach().double()
    count, last = weights.size(-1), tensor.size(-1)
    if not replacement:
        drawn = inplace.exponential_(torch.empty_like(weights), key)
        order = (weights / drawn).argsort(dim=-1, descending=True, stable=True)
        write(tensor, order[..., :last])
        return
    unit = 2.0 ** (52 - (count - 1).bit_length())
    parts = (weights / weights.amax(-1, keepdim=True) * unit).ceil().long()
    ends = parts.cumsum(-1)
    total = ends[..., -1:]
    drawn = inplace.uniform_(_doubles(tensor), key)
    chosen = torch.minimum((drawn * total).long(), total - 1)
    write(tensor, torch.searchsorted(ends, chosen, right=True))


def check_weights(
    function: str, weights: torch.Tensor, num_samples: int, replacement: bool
) -> None:
    tensors.check_dtype(function, "input", weights, *REALS)
    tensors.check_dense(function, "input", weights)
    if layout.is_dtensor(weights) or weights.dim() not in (1, 2):
        rule = "a tensor of 1 or 2 dimensions, and no DTensor"
        raise validation.value_error(function, "input", rule, weights)
    most = 2**31 if replacement else weights.size(-1)
    if not isinstance(num_samples, torch.SymInt):
        validation.check_int(function, "num_samples", num_samples, 1, most)

    def are_weights(found: torch.Tensor) -> torch.Tensor:
        sums = found.sum(-1)
        return (found >= 0).all(-1) & (sums > 0) & sums.isfinite()

    rule = "0 or more, with a sum above 0 and finite"
    _check_values("input", weights.detach().double(), are_weights, rule)


def _check_values(
    argument: str,
    values: torch.Tensor,
    are_valid: Callable[[torch.Tensor], torch.Tensor],
    rule: str,
) -> None:
    """ValueError unless all values are valid; not checked where reading them would wait."""
    local = layout.local_part(values)
    if tensors.is_readable(local) and not bool(are_valid(local).all()):
        raise validation.value_error(_FUNCTION, argument, rule, values)


def randperm(tensor: torch.Tensor, key: Key) -> None:
    """Fill a vector with the order of n samples that ``docs/spec/derivation.md`` specifies."""
    if tensor.dim() != 1 or tensor.numel() > _end(tensor.dtype):
        rule = f"a vector, of elements that are numbers of {tensor.dtype}"
        raise validation.value_error(_FUNCTION, "tensor", rule, tensor)
    whole = torch.empty(tensor.numel(), dtype=torch.int64, device="cpu")
    if isinstance(key, torch.Tensor):
        shuffle_of_key(whole, key.cpu())
        write(tensor, whole)
    elif len(whole):
        derive.fill_shuffle(whole, key, len(whole), 0, 1)
        keep_part(tensor, whole, function=_FUNCTION)


def _doubles(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, dtype=torch.float64)


def write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Write new values of another dtype, rounded once; gradients do not pass."""
    with torch.no_grad():
        if values.dtype == torch.float64 and tensor.dtype in (torch.float16, torch.bfloat16):
            local = layout.local_part(values)
            local.copy_(_odd(local))
        tensor.copy_(values)


def _odd(x: torch.Tensor) -> torch.Tensor:
    """Return float32 numbers with which torch's way to 16 bits, over float32, rounds x once.

    Where x lies between two numbers it is the one with the odd last bit (Boldo, 2008).
    """
    near = x.float()
    bits = near.view(torch.int32)
    other = bits + torch.where(near.abs() < x.abs(), 1, -1).int()
    return torch.where((near == x) | (bits % 2 != 0), bits, other).view(torch.float32)


def keep_part(
    tensor: torch.Tensor,
    whole: torch.Tensor,
    as_zeros: bool = False,
    function: str = _INITIALIZE,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Write what ``tensor`` holds of ``whole``, or zeros where that is True."""
    tensors.check_memory(function, "tensor", layout.local_part(tensor))
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        local, pieces = layout.of_tensor(function, tensor, shard)
        flat = whole.contiguous().view(-1)
        for box, sizes, strides, offset in pieces:
            view = local[box] if box else local
            part = flat[offset : offset + view.numel()]
            if sizes:
                part = flat.as_strided(sizes, strides, flat.storage_offset() + offset)
            part = part.reshape(view.shape).to(view.device)
            view.masked_fill_(part, 0) if as_zeros else view.copy_(part)
        if local is not tensor and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
    return tensor


def _check_weight(tensor: torch.Tensor, dimensions: tuple[int, int], rule: str) -> None:
    tensors.check_dtype(_INITIALIZE, "tensor", tensor, *REALS)
    if not dimensions[0] <= tensor.dim() <= dimensions[1]:
        raise validation.value_error(_INITIALIZE, "tensor", rule, tensor)


def orthogonal_(tensor: torch.Tensor, key: int, gain: float = 1.0) -> None:
    """Fill a weight with a (semi-)orthogonal matrix, times ``gain``; ranks compute all of it."""
    _check_weight(tensor, (2, 64), "a tensor of 2 dimensions or more")
    most = sys.float_info.max
    gain = validation.check_float(_INITIALIZE, "gain", gain, -most, most)
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
    _check_weight(tensor, (2, 2), "a matrix")
    part = validation.check_float(_INITIALIZE, "sparsity", sparsity, 0, 1)
    std = validation.check_float(_INITIALIZE, "std", std, 0, sys.float_info.max)
    if tensor.numel() == 0:
        return
    words = torch.empty(tensor.shape, dtype=torch.uint64, device="cpu")
    keys = check_keys(_INITIALIZE, "key", key, words.device).view(1, 2)
    # behind more words than the numbers take, in any dtype
    position = torch.full((1,), 2 * tensor.numel(), dtype=torch.int64, device="cpu")
    DRAW["bits"](words, keys, position, (), (), 0)
    signed = words.view(torch.int64) ^ torch.iinfo(torch.int64).min  # in the order of the words
    chosen = signed.argsort(dim=0, stable=True)[: math.ceil(part * tensor.size(0))]
    zero = torch.zeros_like(words, dtype=torch.bool).scatter_(0, chosen, value=True)
    inplace.normal_(tensor, key, 0.0, std)
    keep_part(tensor, zero, as_zeros=True)


FILLS: dict[str, Fill] = {
    "normal_": normal,
    "uniform_": uniform,
    "exponential_": inplace.exponential_,
    "log_normal_": log_normal,
    "cauchy_": cauchy,
    "geometric_": geometric,
    "bernoulli_": bernoulli,
    "random_": randint,
    "randperm": randperm,
}
"""Torch's functions that write random numbers, and what a key writes in place of each."""

INITIALIZERS: dict[str, Fill] = {
    "trunc_normal_": inplace.trunc_normal_,
    "orthogonal_": orthogonal_,
    "sparse_": sparse_,
}
"""Functions of ``torch.nn.init`` that compute with random numbers in Python."""
