"""The functions of ``fastseed.nn.init``."""

from __future__ import annotations

import math
import sys

import torch

from ..._backend import derive_ops, tensors
from ..._backend.op_checks import REALS
from ..._utils import validation
from ...random import bits, layout, normal_, uniform_
from ...random.functional import Keys, check_device, check_keys
from .names import local_part


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

    Examples:
        >>> import torch
        >>> fastseed.nn.init.kaiming_uniform_(torch.empty(1, 3), 42)
        tensor([[ 0.3195, -0.0889, -1.2071]])
    """
    function = "nn.init.kaiming_uniform_"
    _check_weight(function, tensor, key)
    bound = math.sqrt(3.0) * _kaiming(function, tensor, a, mode, nonlinearity)
    return fill_uniform(tensor, key, -bound, bound)


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

    Examples:
        >>> import torch
        >>> fastseed.nn.init.kaiming_normal_(torch.empty(1, 3), 42).shape
        torch.Size([1, 3])
    """
    function = "nn.init.kaiming_normal_"
    _check_weight(function, tensor, key)
    std = _kaiming(function, tensor, a, mode, nonlinearity)
    return normal_(tensor, key, 0.0, std)


def xavier_uniform_(tensor: torch.Tensor, key: Keys, gain: float = 1.0) -> torch.Tensor:
    """Fill a weight with uniform random numbers bounded by its fan in and fan out.

    Args:
        tensor: the weight, of two dimensions or more.
        key: a 128-bit integer, or (2,) torch.uint64.
        gain: multiplies the bound; 0 or more.

    Returns:
        ``tensor``. Source: Glorot and Bengio (2010).

    Examples:
        >>> import torch
        >>> fastseed.nn.init.xavier_uniform_(torch.empty(2, 3), 42).abs().max() <= (6 / 5) ** 0.5
        tensor(True)
    """
    function = "nn.init.xavier_uniform_"
    _check_weight(function, tensor, key)
    bound = _gain(function, gain, 0.0) * math.sqrt(6.0 / sum(_fans(tensor)))
    return fill_uniform(tensor, key, -bound, bound)


def xavier_normal_(tensor: torch.Tensor, key: Keys, gain: float = 1.0) -> torch.Tensor:
    """Fill a weight with normal random numbers of a std from its fan in and fan out.

    Args:
        tensor: the weight, of two dimensions or more.
        key: a 128-bit integer, or (2,) torch.uint64.
        gain: multiplies the standard deviation; 0 or more.

    Returns:
        ``tensor``. Source: Glorot and Bengio (2010).

    Examples:
        >>> import torch
        >>> fastseed.nn.init.xavier_normal_(torch.empty(2, 3), 42).shape
        torch.Size([2, 3])
    """
    function = "nn.init.xavier_normal_"
    _check_weight(function, tensor, key)
    std = _gain(function, gain, 0.0) * math.sqrt(2.0 / sum(_fans(tensor)))
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
        gain: multiplies the matrix; a finite number.

    Returns:
        ``tensor``. Source: Saxe et al. (2013); Mezzadri (2007) for the signs.

    Examples:
        >>> import torch
        >>> q = fastseed.nn.init.orthogonal_(torch.empty(3, 5), 42)
        >>> torch.allclose(q @ q.T, torch.eye(3), atol=1e-6)
        True
    """
    function = "nn.init.orthogonal_"
    _check_weight(function, tensor, key)
    gain = _gain(function, gain, -sys.float_info.max)
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows = tensor.size(0)
    flat = torch.empty(rows, tensor.numel() // rows, dtype=torch.float64, device="cpu")
    normal_(flat, _on_cpu(key))
    q, r = torch.linalg.qr(flat if rows >= flat.size(1) else flat.T)
    q = q * r.diagonal().sign() * gain
    return keep_part(function, tensor, q if rows >= flat.size(1) else q.T)


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

    Examples:
        >>> import torch
        >>> (fastseed.nn.init.sparse_(torch.empty(4, 3), 42, 0.5) == 0).sum(0)
        tensor([2, 2, 2])
    """
    function = "nn.init.sparse_"
    _check_tensor(function, tensor, key, REALS, (2, 2), "a matrix")
    part = validation.check_float(function, "sparsity", sparsity, 0, 1)
    std = validation.check_float(function, "std", std, 0, sys.float_info.max)
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    # more words than the numbers take, in any dtype
    after = torch.tensor(2 * tensor.numel(), device="cpu")
    words = bits(_on_cpu(key), tuple(tensor.shape), dtype=torch.uint64, positions=after)
    signed = words.view(torch.int64) ^ torch.iinfo(torch.int64).min  # in the order of the words
    chosen = signed.argsort(dim=0, stable=True)[: math.ceil(part * tensor.size(0))]
    zero = torch.zeros_like(words, dtype=torch.bool).scatter_(0, chosen, value=True)
    normal_(tensor, key, 0.0, std)
    return keep_part(function, tensor, zero, as_zeros=True)


def randperm_(tensor: torch.Tensor, key: Keys) -> torch.Tensor:
    """Fill a vector of integers with a random permutation of 0, 1, ..., n - 1.

    It is the order of n samples that ``docs/spec/derivation.md`` calls the shuffle.

    Args:
        tensor: the vector, torch.int64.
        key: a 128-bit integer, or (2,) torch.uint64.

    Returns:
        ``tensor``.

    Examples:
        >>> import torch
        >>> fastseed.nn.init.randperm_(torch.empty(5, dtype=torch.int64), 42).sort().values
        tensor([0, 1, 2, 3, 4])
    """
    function = "nn.init.randperm_"
    _check_tensor(function, tensor, key, (torch.int64,), (1, 1), "a vector")
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    whole = torch.empty(tensor.numel(), dtype=torch.int64, device="cpu")
    if isinstance(key, torch.Tensor):
        lo, hi = key.tolist()
        key = lo | hi << 64
    derive_ops.fill_shuffle(whole, int(key), len(whole), 0, 1)
    return keep_part(function, tensor, whole)


# ---------------------------------------------------------------- shared


def _check_weight(function: str, tensor: torch.Tensor, key: Keys) -> None:
    _check_tensor(function, tensor, key, REALS, (2, 64), "a tensor of 2 dimensions or more")


def _check_tensor(
    function: str,
    tensor: torch.Tensor,
    key: Keys,
    dtypes: tuple[torch.dtype, ...],
    dimensions: tuple[int, int],
    rule: str,
) -> None:
    """Check the output and the key of an initializer, so that nothing is written before an error.

    ``dimensions`` are the least and the most that the tensor may have, which ``rule`` says.
    """
    tensors.check_dtype_of(function, "tensor", tensor, dtypes)
    _check_memory(function, tensor, key)
    if not dimensions[0] <= tensor.dim() <= dimensions[1]:
        raise validation.value_error(function, "tensor", rule, tensor)
    keys = check_keys(function, "key", key, torch.device("cpu"))
    if keys.dim() != 1:
        raise validation.value_error(function, "key", "of shape (2,)", tuple(keys.shape))
    if keys.is_meta and not local_part(tensor).is_meta:
        raise validation.value_error(function, "key", "a tensor with data", keys.device)
    if layout.is_dtensor(tensor):
        with torch.no_grad():
            layout.of_dtensor(function, tensor)


def _check_memory(function: str, tensor: torch.Tensor, key: Keys | None = None) -> None:
    local = local_part(tensor)
    check_device(function, "tensor", local.device)
    tensors.check_dense(function, "tensor", local)
    tensors.check_writable(function, "tensor", local, key=key)


def _gain(function: str, gain: float, least: float) -> float:
    return validation.check_float(function, "gain", gain, least, sys.float_info.max)


def _fans(tensor: torch.Tensor) -> tuple[int, int]:
    """Return (fan in, fan out) of the whole tensor, as ``torch.nn.init`` counts them.

    At least 1, for weights without elements: they get no values, whatever the fans are.
    """
    field = math.prod(tensor.shape[2:])
    return max(tensor.size(1) * field, 1), max(tensor.size(0) * field, 1)


def _kaiming(function: str, tensor: torch.Tensor, a: float, mode: str, nonlinearity: str) -> float:
    """Return the standard deviation."""
    fans = dict(zip(("fan_in", "fan_out"), _fans(tensor), strict=True))
    fan = fans[validation.check_choice(function, "mode", mode, tuple(fans))]
    limit = math.sqrt(sys.float_info.max) / 2  # its square is finite
    slope = validation.check_float(function, "a", a, -limit, limit)
    validation.check_text(function, "nonlinearity", nonlinearity)
    try:
        gain: float = torch.nn.init.calculate_gain(nonlinearity, slope)  # type: ignore[arg-type]
    except ValueError:
        rule = "a name that torch.nn.init.calculate_gain takes"
        raise validation.value_error(function, "nonlinearity", rule, nonlinearity) from None
    return gain / math.sqrt(fan)


def fill_uniform(
    tensor: torch.Tensor, key: Keys, low: float = 0.0, high: float = 1.0
) -> torch.Tensor:
    """Fill as ``uniform_`` does; with ``low`` where both bounds are equal, as torch does."""
    if low != high or tensor.dtype not in REALS:
        return uniform_(tensor, key, low, high)
    _check_memory("nn.init.uniform_", tensor)
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        return tensor.fill_(low)


def _on_cpu(key: Keys) -> Keys:
    return key.cpu() if isinstance(key, torch.Tensor) else key


def keep_part(
    function: str, tensor: torch.Tensor, whole: torch.Tensor, as_zeros: bool = False
) -> torch.Tensor:
    """Write what ``tensor`` holds of ``whole``, or zeros where that is True."""
    _check_memory(function, tensor)
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        local, pieces = tensor, layout.WHOLE
        if layout.is_dtensor(tensor):
            local, pieces = layout.of_dtensor(function, tensor)
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
