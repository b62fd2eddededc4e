"""In-place fills from a key: of a tensor, of a part of a larger one, of a ``DTensor``.

A value is a function of (key, index in the *logical* tensor): parts that are put together
equal the whole. Parameters are filled without gradients, as by ``torch.nn.init``. In compiled code,
a key that changes from call to call has to be a tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .._backend import private_torch, tensors
from .._backend.ops.draws import DIRECT_DRAW, DRAW
from .._utils import validation
from . import distributions, functional, layout
from .distributions import Distribution
from .functional import Key
from .layout import Shard


def uniform_(
    tensor: torch.Tensor,
    key: Key,
    low: float = 0.0,
    high: float = 1.0,
    *,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Fill a tensor with uniform random numbers in [low, high), never ``high``; return it.

    Args:
        tensor: the tensor or ``DTensor``; float16, bfloat16, float32 or float64.
        key: a 128-bit integer, or (2,) torch.uint64.
        low: the lower bound, finite in the tensor's dtype.
        high: the upper bound, above ``low``; ``high - low`` is finite in that dtype.
        shard: which part of a larger tensor this is; None for a ``DTensor``, which records it.

    Raises:
        TypeError, ValueError: an argument or the dtype is invalid; nothing is written.

    Examples:
        >>> import torch
        >>> fastseed.random.uniform_(torch.empty(3), 42)
        tensor([0.6130, 0.4686, 0.0732])
    """
    return _fill(distributions.uniform, "random.uniform_", tensor, key, shard, low, high)


def normal_(
    tensor: torch.Tensor,
    key: Key,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Fill a tensor as ``normal`` draws; the rest is as for ``fastseed.random.uniform_``.

    Examples:
        >>> import torch
        >>> part = fastseed.random.Shard(global_shape=(4, 2), offsets=(2, 0))
        >>> whole = fastseed.random.normal_(torch.empty(4, 2), 42, std=0.02)
        >>> rows = fastseed.random.normal_(torch.empty(2, 2), 42, std=0.02, shard=part)
        >>> torch.equal(rows, whole[2:])
        True
    """
    return _fill(distributions.normal, "random.normal_", tensor, key, shard, mean, std)


def exponential_(
    tensor: torch.Tensor, key: Key, rate: float = 1.0, *, shard: Shard | None = None
) -> torch.Tensor:
    """Fill a tensor as ``exponential`` draws; the rest is as for ``fastseed.random.uniform_``.

    Examples:
        >>> import torch
        >>> fastseed.random.exponential_(torch.empty(2), 42)
        tensor([0.4895, 0.7580])
    """
    return _fill(distributions.exponential, "random.exponential_", tensor, key, shard, rate)


def trunc_normal_(
    tensor: torch.Tensor,
    key: Key,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    *,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Fill a tensor as ``trunc_normal`` draws; the rest is as for ``fastseed.random.uniform_``.

    Examples:
        >>> import torch
        >>> fastseed.random.trunc_normal_(torch.empty(3), 42, a=-1.0, b=1.0)
        tensor([-0.7200,  0.9150,  0.1256])
    """
    make, parameters = distributions.trunc_normal, (mean, std, a, b)
    return _fill(make, "random.trunc_normal_", tensor, key, shard, *parameters)


def bernoulli_(
    tensor: torch.Tensor, key: Key, p: float = 0.5, *, shard: Shard | None = None
) -> torch.Tensor:
    """Fill a tensor as ``bernoulli`` draws; the rest is as for ``fastseed.random.uniform_``.

    Examples:
        >>> import torch
        >>> fastseed.random.bernoulli_(torch.empty(4), 42, p=0.25)
        tensor([0., 0., 1., 0.])
    """
    return _fill(distributions.bernoulli, "random.bernoulli_", tensor, key, shard, p)


def randint_(
    tensor: torch.Tensor, key: Key, low: int, high: int, *, shard: Shard | None = None
) -> torch.Tensor:
    """Fill a tensor as ``randint`` draws; the rest is as for ``fastseed.random.uniform_``.

    Examples:
        >>> import torch
        >>> fastseed.random.randint_(torch.empty(4, dtype=torch.int64), 42, 0, 10)
        tensor([6, 4, 0, 3])
    """
    return _fill(distributions.randint, "random.randint_", tensor, key, shard, low, high)


def bits_(tensor: torch.Tensor, key: Key, *, shard: Shard | None = None) -> torch.Tensor:
    """Fill a tensor as ``bits`` draws; the rest is as for ``fastseed.random.uniform_``.

    Examples:
        >>> import torch
        >>> fastseed.random.bits_(torch.empty(2, dtype=torch.uint32), 42)
        tensor([2632642643, 2012563771], dtype=torch.uint32)
    """
    return _fill(distributions.bits, "random.bits_", tensor, key, shard)


def _fill(
    make: Callable[..., Distribution],
    function: str,
    tensor: torch.Tensor,
    key: object,
    shard: Shard | None,
    *parameters: object,
) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise validation.type_error(function, "tensor", "a torch.Tensor", tensor)
    is_plain = private_torch.is_plain_eager()
    if not is_plain:
        parameters = tuple(map(distributions.constant, parameters))
    distribution = make(function, tensor.dtype, *parameters)
    is_drawn = (  # nearly every call
        is_plain
        and shard is None
        and functional.is_key(key)
        and DIRECT_DRAW[distribution.name](tensor, key, key >> 64, *distribution.parameters)
    )
    if not is_drawn:
        with torch.no_grad():
            _write(function, distribution, tensor, key, shard)
    return tensor


def _write(
    function: str,
    distribution: Distribution,
    tensor: torch.Tensor,
    key: object,
    shard: Shard | None,
) -> None:
    if tensor.is_nested:  # which has no shape for a shard to be compared with
        tensors.check_dense(function, "tensor", tensor)
    local, pieces = layout.of_tensor(function, tensor, shard)
    tensors.check_memory(function, "tensor", local)
    keys = functional.key_on(function, "key", key, local.device)
    functional.refuse_batched(function, local, keys)
    for box, sizes, strides, offset in pieces if local.numel() else ():
        view = local[box] if box else local
        direct = view.is_contiguous() and not private_torch.has_tangents()  # which copy_ zeroes
        direct = direct and (torch.compiler.is_compiling() or not view.is_neg())
        out = view if direct else view.new_empty(view.shape)
        DRAW[distribution.name](out, keys, None, sizes, strides, offset, *distribution.parameters)
        if not direct:
            view.copy_(out)
    if local is not tensor and not tensor.is_inference():  # the DTensor around it
        torch.autograd.graph.increment_version(tensor)
