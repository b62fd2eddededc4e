"""Draws from keys: pure functions, on the device that the keys are on.

Each takes ``keys``, uint64 of shape (n, 2) as :func:`fastseed.derive_keys` gives them, and returns
(n, \\*shape): row i is drawn from stream i alone. One key, (2,), gives ``shape`` itself.

Value j of a row is a function of (key, position, j) that ``docs/draws.md`` specifies: the first
values of a longer draw are those of a shorter one. Nothing is advanced: a draw of the same keys at
the same positions repeats (see :class:`fastseed.random.StreamBank` for streams that go on).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .._backend import draw_ops
from .._utils import validation
from . import distributions
from .distributions import MAX_WORDS, Distribution

_SIZES = (int, np.integer, torch.SymInt)

Shape = Sequence[int] | int


def rand(
    keys: torch.Tensor,
    shape: Shape,
    *,
    low: float = 0.0,
    high: float = 1.0,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Uniform numbers of [low, high), never ``high`` itself.

    Args:
        keys: (n, 2) or (2,), torch.uint64, on the CPU or a CUDA device.
        shape: of what is drawn from each key: integers, not negative, or one of them.
        low: a number that is finite in ``dtype``, as ``high - low`` is.
        high: a number, above ``low`` in ``dtype``.
        dtype: torch.float16, bfloat16, float32 or float64; unless given that of ``out``, or torch's
            default.
        positions: words of each stream to leave out, in [0, 2**56): (n,), or () for one key;
            torch.int64, on the device of the keys. A draw begins at the next multiple of 4.
            Values are not checked. Zeros unless given.
        out: write here: (n, \\*shape), or ``shape`` for one key, of any strides, on the device of
            the keys.

    Returns:
        ``out``, or a new contiguous tensor.

    Raises:
        TypeError, ValueError: for an argument that is none of these; ``out`` has not changed.
    """
    what = distributions.uniform("rand", low, high, dtype_of(dtype, out))
    return _draw("rand", what, keys, shape, positions, out)


def randn(
    keys: torch.Tensor,
    shape: Shape,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Normal numbers.

    Args:
        keys: see :func:`rand`, as for ``shape``, ``dtype``, ``positions`` and ``out``.
        shape: see above.
        mean: a number that is finite in ``dtype``.
        std: the standard deviation, finite in ``dtype`` and not negative.
        dtype: see above.
        positions: see above.
        out: see above.

    Returns, raises: see :func:`rand`.
    """
    what = distributions.normal("randn", mean, std, dtype_of(dtype, out))
    return _draw("randn", what, keys, shape, positions, out)


def exponential(
    keys: torch.Tensor,
    shape: Shape,
    *,
    rate: float = 1.0,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Exponential numbers, of mean 1 / rate.

    Args:
        keys: see :func:`rand`, as for ``shape``, ``dtype``, ``positions`` and ``out``.
        shape: see above.
        rate: above 0, and 1 / rate finite and above 0 in ``dtype``.
        dtype: see above.
        positions: see above.
        out: see above.

    Returns, raises: see :func:`rand`.
    """
    what = distributions.exponential("exponential", rate, dtype_of(dtype, out))
    return _draw("exponential", what, keys, shape, positions, out)


def bernoulli(
    keys: torch.Tensor,
    p: float,
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Ones (True) with probability ``p``, to within 2**-33, else zeros.

    Args:
        keys: see :func:`rand`, as for ``shape``, ``positions`` and ``out``.
        p: in [0, 1].
        shape: see above.
        dtype: torch.bool, uint8, float16, bfloat16, float32 or float64, with the same values in
            each; unless given that of ``out``, or torch.bool.
        positions: see above.
        out: see above.

    Returns, raises: see :func:`rand`.
    """
    what = distributions.bernoulli("bernoulli", p, dtype_of(dtype, out))
    return _draw("bernoulli", what, keys, shape, positions, out)


def randint(
    keys: torch.Tensor,
    low: int,
    high: int,
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Integers of [low, high), each exactly as likely as any other.

    Args:
        keys: see :func:`rand`, as for ``shape``, ``positions`` and ``out``.
        low: an integer of ``dtype``.
        high: an integer above ``low``, at most one more than the largest of ``dtype``;
            ``high - low`` is below 2**64, for torch.int32 below 2**32.
        shape: see above.
        dtype: torch.uint8, int32 or int64, with the same values in each; unless given that of
            ``out``, or torch.int64.
        positions: see above.
        out: see above.

    Returns, raises: see :func:`rand`.
    """
    what = distributions.randint("randint", low, high, dtype_of(dtype, out))
    return _draw("randint", what, keys, shape, positions, out)


def bits(
    keys: torch.Tensor,
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The words of the streams themselves.

    Args:
        keys: see :func:`rand`, as for ``shape``, ``positions`` and ``out``.
        shape: see above.
        dtype: torch.uint32 or uint64 (two words, the lower one first); unless given that of
            ``out``, or torch.uint32.
        positions: see above.
        out: see above.

    Returns, raises: see :func:`rand`.
    """
    what = distributions.bits("bits", dtype_of(dtype, out))
    return _draw("bits", what, keys, shape, positions, out)


# ---------------------------------------------------------------- checks


def check_device(function: str, argument: str, device: torch.device) -> None:
    """ValueError unless there are operators for tensors on ``device``."""
    if device.type in ("cpu", "meta") or (device.type == "cuda" and draw_ops.has_cuda):
        return
    rule = (
        "the CPU or a CUDA device"
        if draw_ops.has_cuda
        else "the CPU where the CUDA part was not built"
    )
    raise ValueError(f"fastseed.{function}: {argument} must be on {rule}, got {device}")


def check_tensor(function: str, argument: str, value: Any, dtype: torch.dtype) -> None:
    """TypeError unless ``value`` is a tensor of ``dtype``."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"fastseed.{function}: {argument} must be a tensor, "
            f"got {validation.describe(value)} of type {type(value).__name__}"
        )
    if value.dtype != dtype:
        raise TypeError(
            f"fastseed.{function}: {argument} must be of dtype {dtype}, got {value.dtype}"
        )


def check_place(
    function: str, argument: str, value: torch.Tensor, shape: tuple[int, ...], device: torch.device
) -> None:
    """ValueError unless ``value`` is of ``shape`` and on ``device``."""
    if value.layout != torch.strided:
        raise ValueError(f"fastseed.{function}: {argument} must be strided, got {value.layout}")
    if tuple(value.shape) != shape:
        raise ValueError(
            f"fastseed.{function}: {argument} must be of shape {shape}, got {tuple(value.shape)}"
        )
    if value.device != device:
        raise ValueError(
            f"fastseed.{function}: {argument} must be on device {device}, got {value.device}"
        )


def check_memory(function: str, argument: str, tensor: torch.Tensor) -> None:
    """ValueError where two elements may share memory, or elements have none."""
    if tensor.layout != torch.strided:
        raise ValueError(f"fastseed.{function}: {argument} must be strided, got {tensor.layout}")
    if tensor.is_contiguous():
        return
    axes = [axis for axis in zip(tensor.stride(), tensor.shape, strict=True) if axis[1] != 1]
    for i, (stride, _) in enumerate(axes):
        # from the first to the last element along the axes whose steps are not longer
        reach = sum(t * (n - 1) for j, (t, n) in enumerate(axes) if t <= stride and j != i)
        if stride <= reach:
            raise ValueError(
                f"fastseed.{function}: {argument} must not overlap itself, got the strides "
                f"{tensor.stride()} for the shape {tuple(tensor.shape)}"
            )


def check_keys(function: str, keys: Any) -> None:
    """Keys are (n, 2) or (2,), uint64, on a device that has the operators."""
    check_tensor(function, "keys", keys, torch.uint64)
    if keys.dim() not in (1, 2) or keys.size(-1) != 2:
        raise ValueError(
            f"fastseed.{function}: keys must be of shape (n, 2) or (2,), got {tuple(keys.shape)}"
        )
    check_device(function, "keys", keys.device)


def check_shape(function: str, shape: Any, words: int) -> tuple[int, ...]:
    """A shape as a tuple; one integer stands for itself."""
    if isinstance(shape, _SIZES):
        shape = (shape,)
    if not isinstance(shape, (tuple, list)):
        raise TypeError(
            f"fastseed.{function}: shape must be a tuple of integers, "
            f"got {validation.describe(shape)} of type {type(shape).__name__}"
        )
    sizes = tuple(int(s) if isinstance(s, np.integer) else s for s in shape)
    count: Any = words
    for i, size in enumerate(sizes):
        if isinstance(size, bool) or not isinstance(size, _SIZES):
            raise TypeError(
                f"fastseed.{function}: shape[{i}] must be an integer, "
                f"got {validation.describe(size)} of type {type(size).__name__}"
            )
        if size < 0:
            raise ValueError(f"fastseed.{function}: shape[{i}] must not be negative, got {size}")
        count = count * size
    if count > MAX_WORDS:
        raise ValueError(
            f"fastseed.{function}: shape must take at most 2**56 words, got {count} for {shape}"
        )
    return sizes


def written_to(out: torch.Tensor) -> None:
    """Let autograd know that an operator wrote into a tensor of the user's."""
    if not torch.compiler.is_compiling() and not out.is_inference():
        torch.autograd.graph.increment_version(out)


def dtype_of(dtype: torch.dtype | None, out: torch.Tensor | None) -> torch.dtype | None:
    """The dtype asked for: that of ``out`` where none is given."""
    return out.dtype if dtype is None and isinstance(out, torch.Tensor) else dtype


def _check_out(
    function: str, out: Any, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> None:
    check_tensor(function, "out", out, dtype)
    check_place(function, "out", out, shape, device)
    check_memory(function, "out", out)
    if out.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"fastseed.{function}: out must not require grad where gradients are recorded, "
            "got a tensor that does"
        )


def is_negated(out: torch.Tensor) -> bool:
    """Whether its memory holds the negatives of its values, as views of conjugates do."""
    return not torch.compiler.is_compiling() and out.is_neg()


def draw_into(
    function: str,
    what: Distribution,
    keys: torch.Tensor,
    positions: torch.Tensor | None,
    shape: tuple[int, ...],
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Draw ``shape`` into ``out``, or a new tensor; only ``out`` is still to be checked."""
    if out is not None:
        _check_out(function, out, what.dtype, shape, keys.device)
    direct = out is not None and out.is_contiguous() and not is_negated(out)
    target = out if direct else torch.empty(shape, dtype=what.dtype, device=keys.device)
    assert target is not None
    what.fill(target, keys.view(-1, 2), positions)
    if out is None:
        return target
    if direct:
        written_to(out)
        return out
    return out.copy_(target)


def _draw(
    function: str,
    what: Distribution,
    keys: Any,
    shape: Any,
    positions: Any,
    out: Any,
) -> torch.Tensor:
    check_keys(function, keys)
    shape = (*keys.shape[:-1], *check_shape(function, shape, what.words))
    if positions is not None:
        check_tensor(function, "positions", positions, torch.int64)
        check_place(function, "positions", positions, tuple(keys.shape[:-1]), keys.device)
        positions = positions.contiguous().view(-1)
    return draw_into(function, what, keys.contiguous(), positions, shape, out)
