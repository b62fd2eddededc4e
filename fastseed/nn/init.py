"""Initialisers as functions of a key: the same values however a tensor is laid out over devices.

``fastseed.nn.initialize`` calls them for the parameters of a model. A tensor is a whole one or a
``DTensor``. ``uniform_``, ``normal_``, ``trunc_normal_``, ``exponential_`` and ``bernoulli_`` are
in ``fastseed.random``.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .._backend import derive_ops
from .._utils import validation
from ..random import bits, normal_, shards, uniform_
from ..random.functional import Keys, check_keys

__all__ = [
    "kaiming_normal_",
    "kaiming_uniform_",
    "orthogonal_",
    "randperm_",
    "sparse_",
    "xavier_normal_",
    "xavier_uniform_",
]


def kaiming_uniform_(
    tensor: torch.Tensor,
    key: Keys,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
) -> torch.Tensor:
    """Fill a weight with uniform random numbers whose bound keeps the variance of activations.

    Args:
        tensor: the weight, of two dimensions or more.
        key: a 128-bit integer, or (2,) torch.uint64.
        a: the negative slope of ``leaky_relu``.
        mode: ``"fan_in"`` or ``"fan_out"``.
        nonlinearity: as for ``torch.nn.init.calculate_gain``.

    Returns:
        ``tensor``. Source: He et al. (2015), with the bound of ``torch.nn.init.kaiming_uniform_``.

    Raises:
        TypeError, ValueError: an argument is invalid; nothing is written.

    Examples:
        >>> import torch
        >>> fastseed.nn.init.kaiming_uniform_(torch.empty(1, 3), 42)
        tensor([[ 0.3195, -0.0889, -1.2071]])
    """
    bound = math.sqrt(3.0) * _kaiming("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, key, -bound, bound)


def kaiming_normal_(
    tensor: torch.Tensor,
    key: Keys,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
) -> torch.Tensor:
    """Fill a weight with normal random numbers that keep the variance of activations.

    Args:
        tensor: the weight, of two dimensions or more.
        key: a 128-bit integer, or (2,) torch.uint64.
        a: the negative slope of ``leaky_relu``.
        mode: ``"fan_in"`` or ``"fan_out"``.
        nonlinearity: as for ``torch.nn.init.calculate_gain``.

    Returns:
        ``tensor``. Source: He et al. (2015).

    Raises:
        TypeError, ValueError: an argument is invalid; nothing is written.

    Examples:
        >>> import torch
        >>> fastseed.nn.init.kaiming_normal_(torch.empty(1, 3), 42).shape
        torch.Size([1, 3])
    """
    std = _kaiming("kaiming_normal_", tensor, a, mode, nonlinearity)
    return normal_(tensor, key, 0.0, std)


def xavier_uniform_(tensor: torch.Tensor, key: Keys, gain: float = 1.0) -> torch.Tensor:
    """Fill a weight with uniform random numbers bounded by its fan in and fan out.

    Args:
        tensor: the weight, of two dimensions or more.
        key: a 128-bit integer, or (2,) torch.uint64.
        gain: multiplies the bound.

    Returns:
        ``tensor``. Source: Glorot and Bengio (2010).

    Raises:
        TypeError, ValueError: an argument is invalid; nothing is written.

    Examples:
        >>> import torch
        >>> fastseed.nn.init.xavier_uniform_(torch.empty(2, 3), 42).abs().max() <= (6 / 5) ** 0.5
        tensor(True)
    """
    bound = gain * math.sqrt(6.0 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, key, -bound, bound)


def xavier_normal_(tensor: torch.Tensor, key: Keys, gain: float = 1.0) -> torch.Tensor:
    """Fill a weight with normal random numbers of a std from its fan in and fan out.

    Args:
        tensor: the weight, of two dimensions or more.
        key: a 128-bit integer, or (2,) torch.uint64.
        gain: multiplies the standard deviation.

    Returns:
        ``tensor``. Source: Glorot and Bengio (2010).

    Raises:
        TypeError, ValueError: an argument is invalid; nothing is written.

    Examples:
        >>> import torch
        >>> fastseed.nn.init.xavier_normal_(torch.empty(2, 3), 42).shape
        torch.Size([2, 3])
    """
    std = gain * math.sqrt(2.0 / sum(_fans("xavier_normal_", tensor)))
    return normal_(tensor, key, 0.0, std)


def orthogonal_(tensor: torch.Tensor, key: Keys, gain: float = 1.0) -> torch.Tensor:
    """Fill a weight with a random (semi-)orthogonal matrix, times ``gain``.

    It is Q of the QR decomposition of a matrix of normal random numbers, (rows, all other
    dimensions) or its transpose where that is taller, with the signs that make the diagonal of R
    positive. Every rank computes the whole matrix, in float64 on the CPU, and keeps its part; the
    last bits may depend on the LAPACK library, the CPU and its threads.

    Args:
        tensor: the weight, of two dimensions or more; float16, bfloat16, float32 or float64.
        key: a 128-bit integer, or (2,) torch.uint64.
        gain: multiplies the matrix.

    Returns:
        ``tensor``. Source: Saxe et al. (2013); Mezzadri (2007) for the signs.

    Raises:
        TypeError, ValueError: an argument is invalid; nothing is written.

    Examples:
        >>> import torch
        >>> q = fastseed.nn.init.orthogonal_(torch.empty(3, 5), 42)
        >>> torch.allclose(q @ q.T, torch.eye(3), atol=1e-6)
        True
    """
    _check_weight("orthogonal_", tensor)
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows = tensor.size(0)
    flat = normal_(torch.empty(rows, tensor.numel() // rows, dtype=torch.float64), _on_cpu(key))
    q, r = torch.linalg.qr(flat if rows >= flat.size(1) else flat.T)
    q = q * r.diagonal().sign() * gain
    return keep_part("orthogonal_", tensor, q if rows >= flat.size(1) else q.T)


def sparse_(tensor: torch.Tensor, key: Keys, sparsity: float, std: float = 0.01) -> torch.Tensor:
    """Fill a matrix with normal random numbers, and the same number of zeros in each column.

    The zeros of a column are where it has the smallest 64-bit words, of those of the stream from
    position 2 n on, for n elements. Every rank computes where they are in the whole matrix.

    Args:
        tensor: the matrix; float16, bfloat16, float32 or float64.
        key: a 128-bit integer, or (2,) torch.uint64.
        sparsity: the part of each column that is zero, in [0, 1], rounded up to whole elements.
        std: the standard deviation of the others.

    Returns:
        ``tensor``. Source: Martens (2010).

    Raises:
        TypeError, ValueError: an argument is invalid; nothing is written.

    Examples:
        >>> import torch
        >>> (fastseed.nn.init.sparse_(torch.empty(4, 3), 42, 0.5) == 0).sum(0)
        tensor([2, 2, 2])
    """
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != 2:
        raise validation.value_error("sparse_", "tensor", "a matrix", tensor)
    zeros = math.ceil(
        validation.check_float("sparse_", "sparsity", sparsity, 0, 1) * tensor.size(0)
    )
    normal_(tensor, key, 0.0, std)
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    after = torch.tensor(2 * tensor.numel())  # more words than the numbers took, in any dtype
    words = bits(_on_cpu(key), tuple(tensor.shape), dtype=torch.uint64, positions=after)
    signed = words.view(torch.int64) ^ torch.iinfo(torch.int64).min  # in the order of the words
    chosen = signed.argsort(dim=0, stable=True)[:zeros]
    zero = torch.zeros(tuple(tensor.shape), dtype=torch.bool).scatter_(0, chosen, value=True)
    return keep_part("sparse_", tensor, zero, as_zeros=True)


def randperm_(tensor: torch.Tensor, key: Keys) -> torch.Tensor:
    """Fill a vector of integers with a random permutation of 0, 1, ..., n - 1.

    It is the order of n samples that ``docs/derivation.md`` calls the shuffle.

    Args:
        tensor: the vector, torch.int64.
        key: a 128-bit integer, or (2,) torch.uint64.

    Returns:
        ``tensor``.

    Raises:
        TypeError, ValueError: an argument is invalid; nothing is written.

    Examples:
        >>> import torch
        >>> fastseed.nn.init.randperm_(torch.empty(5, dtype=torch.int64), 42).sort().values
        tensor([0, 1, 2, 3, 4])
    """
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != 1 or tensor.dtype != torch.int64:
        raise validation.value_error("randperm_", "tensor", "a vector of torch.int64", tensor)
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    whole = torch.empty(tensor.numel(), dtype=torch.int64)
    lo, hi = check_keys("randperm_", "key", _on_cpu(key), whole.device).view(2).tolist()
    derive_ops.fill_shuffle(whole, lo | hi << 64, len(whole), 0, 1)
    return keep_part("randperm_", tensor, whole)


# ---------------------------------------------------------------- shared


def _check_weight(function: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.dim() < 2:
        raise validation.value_error(function, "tensor", "a tensor of 2 dimensions or more", tensor)


def _fans(function: str, tensor: torch.Tensor) -> tuple[int, int]:
    """Return (fan in, fan out) of the whole tensor, as ``torch.nn.init`` counts them."""
    _check_weight(function, tensor)
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def _kaiming(function: str, tensor: torch.Tensor, a: float, mode: str, nonlinearity: str) -> float:
    """Return the standard deviation."""
    fans = dict(zip(("fan_in", "fan_out"), _fans(function, tensor), strict=True))
    fan = fans[validation.check_choice(function, "mode", mode, tuple(fans))]
    gain: float = torch.nn.init.calculate_gain(nonlinearity, a)  # type: ignore[arg-type]
    return gain / math.sqrt(fan)


def _on_cpu(key: Keys) -> Keys:
    return key.cpu() if isinstance(key, torch.Tensor) else key


def keep_part(
    function: str, tensor: torch.Tensor, whole: torch.Tensor, as_zeros: bool = False
) -> torch.Tensor:
    """Write what ``tensor`` holds of ``whole``, or zeros where that is True."""
    with torch.no_grad():
        local, pieces = tensor, shards.WHOLE
        if shards.is_dtensor(tensor):
            local, pieces = shards.of_dtensor(function, tensor)
        flat = whole.reshape(-1)
        for box, sizes, strides, offset in pieces:
            view = local[box] if box else local
            part = flat[offset : offset + view.numel()]
            if sizes:
                part = flat.as_strided(sizes, strides, offset)
            part = part.reshape(view.shape).to(view.device)
            view.masked_fill_(part, 0) if as_zeros else view.copy_(part)
        if local is not tensor:
            torch.autograd.graph.increment_version(tensor)
    return tensor
