"""Random numbers from keys: pure functions, on the device of the keys.

Value j of a row is a function of (key, position, j) that ``docs/spec/random.md`` specifies: a
longer row begins with the values of a shorter one, and nothing is advanced. Calls with the same
keys and positions return the same values; ``fastseed.random.StreamBank`` has streams that advance.

A key is a 128-bit integer as ``fastseed.derive_key`` returns it. A tensor of keys is (..., 2)
torch.uint64, each [lo, hi], on the CPU or a CUDA device; the result is there too. Positions are in
[0, 2**56) and rounded up to a multiple of 4. ``out`` has any strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from .._backend import native, tensors
from .._backend.reference.scalar import signed
from .._utils import validation
from . import distributions
from .distributions import MAX_WORDS, Distribution

_SIZES = (int, np.integer, torch.SymInt)
MAX_KEY = 2**128 - 1

Shape = Sequence[int] | int
Keys = int | torch.Tensor


def rand(
    keys: Keys,
    shape: Shape,
    *,
    low: float = 0.0,
    high: float = 1.0,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return uniform random numbers in [low, high), never ``high`` itself.

    Args:
        keys: a key, or a tensor of keys.
        shape: the shape for each key: a tuple of sizes, or one size (unless ``keys`` is an integer
            below 2**32, so that ``f(3, 4)`` is no key 3).
        low: the lower bound, finite in ``dtype``.
        high: the upper bound, above ``low`` in ``dtype``; ``high - low`` is finite there.
        dtype: torch.float16, bfloat16, float32 or float64. Default: that of ``out``, else torch's.
        positions: words of each stream to skip, (...) torch.int64. Default: 0.
        out: the tensor to write to, (..., *shape), with no memory in common with the others.

    Returns:
        ``out``, or a new contiguous tensor: (..., *shape).

    Raises:
        TypeError, ValueError: an argument is invalid; ``out`` is unchanged.

    Examples:
        >>> import torch
        >>> fastseed.init(42)
        >>> key = fastseed.derive_key("noise", task=0)
        >>> torch.equal(fastseed.random.rand(key, (3,)), fastseed.random.rand(key, (5,))[:3])
        True
        >>> fastseed.random.rand(42, (3,))
        tensor([0.6130, 0.4686, 0.0732])
    """
    return _draw("random.rand", keys, shape, dtype, positions, out, low, high)


def randn(
    keys: Keys,
    shape: Shape,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return normally distributed random numbers.

    Arguments that are not listed, the result and the errors are those of ``fastseed.random.rand``.

    Args:
        mean: the mean, finite in ``dtype``.
        std: the standard deviation, finite in ``dtype``, 0 or more.

    Examples:
        >>> import torch
        >>> keys = torch.tensor([[1, 0], [2, 0]], dtype=torch.uint64)
        >>> fastseed.random.randn(keys, (3,))
        tensor([[ 0.3804, -0.2963, -0.2492],
                [-1.3072,  0.0223, -0.1819]])
    """
    return _draw("random.randn", keys, shape, dtype, positions, out, mean, std)


def exponential(
    keys: Keys,
    shape: Shape,
    *,
    rate: float = 1.0,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return exponentially distributed random numbers, of mean 1 / rate.

    Arguments that are not listed, the result and the errors are those of ``fastseed.random.rand``.

    Args:
        rate: above 0, with 1 / rate finite and above 0 in ``dtype``.

    Examples:
        >>> fastseed.random.exponential(42, (3,), rate=2.0)
        tensor([0.2447, 0.3790, 1.3071])
    """
    return _draw("random.exponential", keys, shape, dtype, positions, out, rate)


def trunc_normal(
    keys: Keys,
    shape: Shape,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return random numbers of the normal distribution within [a, b].

    Arguments that are not listed, the result and the errors are those of ``fastseed.random.rand``.

    Args:
        mean: the mean of the whole normal distribution, finite in ``dtype``.
        std: its standard deviation, above 0 and finite in ``dtype``.
        a: the lower bound, finite in ``dtype``.
        b: the upper bound, above ``a`` and finite in ``dtype``; between them lie at least 2**-64 of
            the normal distribution and one number of ``dtype``.

    Examples:
        >>> fastseed.random.trunc_normal(42, (4,), std=0.02, a=-0.04, b=0.04)
        tensor([-0.0225,  0.0324,  0.0035,  0.0187])
    """
    return _draw("random.trunc_normal", keys, shape, dtype, positions, out, mean, std, a, b)


def bernoulli(
    keys: Keys,
    p: float,
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ones (True) with probability ``p``, to within 2**-33, else zeros.

    Arguments that are not listed, the result and the errors are those of ``fastseed.random.rand``.

    Args:
        p: the probability of a one, in [0, 1].
        dtype: torch.bool, uint8, float16, bfloat16, float32 or float64, with the same values in
            each. Default: that of ``out``, else torch.bool.

    Examples:
        >>> fastseed.random.bernoulli(42, 0.5, (4,))
        tensor([False,  True,  True,  True])
    """
    return _draw("random.bernoulli", keys, shape, dtype, positions, out, p)


def randint(
    keys: Keys,
    low: int,
    high: int,
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return random integers of [low, high), each exactly as likely as any other.

    Arguments that are not listed, the result and the errors are those of ``fastseed.random.rand``.

    Args:
        low: the smallest value, an integer of ``dtype``.
        high: one more than the largest value, above ``low``; ``high - low`` is below 2**64, for
            torch.int32 below 2**32.
        dtype: torch.uint8, int32 or int64, with the same values in each. Default: that of ``out``,
            else torch.int64.

    Examples:
        >>> fastseed.random.randint(42, 1, 7, (5,))
        tensor([4, 3, 1, 3, 6])
    """
    return _draw("random.randint", keys, shape, dtype, positions, out, low, high)


def bits(
    keys: Keys,
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return words of the streams themselves.

    Arguments that are not listed, the result and the errors are those of ``fastseed.random.rand``.

    Args:
        dtype: torch.uint32, or uint64 (two words, the lower one first). Default: that of ``out``,
            else torch.uint32.

    Examples:
        >>> fastseed.random.bits(42, (2,)).tolist()
        [2632642643, 2012563771]
    """
    return _draw("random.bits", keys, shape, dtype, positions, out)


# ---------------------------------------------------------------- shared by all of them


def check_device(function: str, argument: str, device: torch.device) -> torch.device:
    """Return ``device`` if the operators run on it."""
    if device.type in ("cpu", "meta") or (device.type == "cuda" and native.has_cuda):
        return device
    rule = "on the CPU or a CUDA device"
    if not native.has_cuda:
        rule = "on the CPU, as fastseed was built without CUDA (see fastseed.build_info())"
    raise ValueError(f"fastseed.{function}: {argument} must be {rule}, got {device}")


def check_keys(function: str, argument: str, keys: object, device: torch.device) -> torch.Tensor:
    """Return keys as (..., 2) uint64; an integer becomes (2,) on ``device``, without a copy."""
    if isinstance(keys, torch.Tensor):
        tensors.check_tensor(function, argument, keys, torch.uint64)
        if keys.dim() == 0 or keys.size(-1) != 2:
            raise validation.value_error(function, argument, "of shape (..., 2)", tuple(keys.shape))
        check_device(function, argument, keys.device)
        return keys
    if isinstance(keys, bool) or not isinstance(keys, (int, np.integer)):
        raise validation.type_error(
            function, argument, "an integer or a tensor of torch.uint64", keys
        )
    key = validation.check_int(function, argument, keys, 0, MAX_KEY)
    check_device(function, "out", device)
    found = torch.empty(2, dtype=torch.int64, device=device)
    found[0] = signed(key & 2**64 - 1)
    found[1] = signed(key >> 64)
    return found.view(torch.uint64)


def _check_unambiguous(function: str, keys: object, shape: object) -> None:
    """TypeError for two integers, as in ``randn(3, 4)``, of which the first is no derived key."""
    if type(keys) is int and isinstance(shape, _SIZES) and 0 <= keys < 2**32:
        rule = (
            f"a tuple where keys is a small integer (the key comes first: key, ({keys}, {shape}))"
        )
        raise validation.type_error(function, "shape", rule, shape)


def check_shape(function: str, shape: object, words: int) -> tuple[int, ...]:
    """Return a shape as a tuple, for values of ``words`` words; one integer is one dimension."""
    if isinstance(shape, _SIZES):
        shape = (shape,)
    if not isinstance(shape, (tuple, list)):
        raise validation.type_error(function, "shape", "a tuple of integers", shape)
    sizes = tuple(int(s) if isinstance(s, np.integer) else s for s in shape)
    count: int | torch.SymInt = words
    for i, size in enumerate(sizes):
        if isinstance(size, bool) or not isinstance(size, _SIZES):
            raise validation.type_error(function, f"shape[{i}]", "an integer", size)
        if size < 0:
            raise validation.value_error(function, f"shape[{i}]", "0 or more", size)
        count = count * size
    if count > MAX_WORDS:
        raise validation.value_error(function, "shape", "of at most 2**56 words", shape)
    return sizes


def count_of(shape: tuple[int, ...]) -> int:
    """Return how many values a shape has; its sizes may be symbols of compiled code."""
    count = 1
    for size in shape:
        count = count * size
    return count


def dtype_of(dtype: torch.dtype | None, out: object) -> torch.dtype | None:
    """Return ``dtype``, or that of ``out`` where none is given."""
    return out.dtype if dtype is None and isinstance(out, torch.Tensor) else dtype


def is_direct(out: torch.Tensor) -> bool:
    """Return whether an operator can write to ``out`` itself: contiguous, no negated view."""
    return out.is_contiguous() and (torch.compiler.is_compiling() or not out.is_neg())


def draw_into(
    function: str,
    what: Distribution,
    keys: torch.Tensor,
    positions: torch.Tensor | None,
    shape: tuple[int, ...],
    out: torch.Tensor | None,
    inputs: Mapping[str, object],
) -> torch.Tensor:
    """Fill ``out``, still to be checked, or a new tensor; ``inputs`` must not overlap ``out``."""
    if out is not None:
        tensors.check_out(function, "out", out, shape, what.dtype, keys.device, **inputs)
        if is_direct(out):
            what.fill(out, keys.view(-1, 2), positions)
            return out
    found = keys.new_empty(shape, dtype=what.dtype)
    what.fill(found, keys.view(-1, 2), positions)
    return found if out is None else out.copy_(found)


def _draw(
    function: str,
    keys: object,
    shape: object,
    dtype: torch.dtype | None,
    positions: torch.Tensor | None,
    out: torch.Tensor | None,
    *parameters: object,
) -> torch.Tensor:
    what = distributions.distribution(function, dtype_of(dtype, out), *parameters)
    device = out.device if isinstance(out, torch.Tensor) else torch.device("cpu")
    _check_unambiguous(function, keys, shape)
    keys = check_keys(function, "keys", keys, device)
    rows = tuple(keys.shape[:-1])
    shape = check_shape(function, shape, what.words)
    if positions is not None:
        tensors.check_tensor(function, "positions", positions, torch.int64, rows, keys.device)
        last = MAX_WORDS - what.advance(count_of(shape))
        tensors.check_values(function, "positions", positions, last)
    inputs = {"keys": keys, "positions": positions}
    positions = None if positions is None else positions.contiguous().view(-1)
    return draw_into(function, what, keys.contiguous(), positions, (*rows, *shape), out, inputs)
