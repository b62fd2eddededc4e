"""In-place fills from a key: of a tensor, of a part of one, of a ``DTensor``.

What is drawn is a function of (key, position, index in the *logical* tensor): parts that are put
together equal the whole, so a model that is initialised on a mesh has the values that one device
gives it, whatever the mesh. No generator is used or changed, and ranks do not communicate.

    fastseed.random.normal_(p, fastseed.derive_key(name, task=0, rank=fastseed.SHARED), std=0.02)
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .._utils import validation
from . import distributions, functional, shards
from .distributions import MAX_WORDS, Distribution
from .shards import Shard

MAX_KEY = 2**128 - 1
MAX_AXES = 8  # of a grid, in one call of an operator


def uniform_(
    tensor: torch.Tensor,
    key: int | torch.Tensor,
    low: float = 0.0,
    high: float = 1.0,
    *,
    position: int = 0,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Fill with uniform numbers of [low, high): reals of 16, 32 or 64 bits.

    Args:
        tensor: of any strides, but with a place of its own for each element; or a ``DTensor`` with
            placements Replicate and Shard, whose local shard is filled. Parameters are filled as
            by :mod:`torch.nn.init`, without gradients.
        key: an integer of 128 bits, such as :func:`fastseed.derive_key` gives, or a (2,) uint64 tensor.
            In a compiled region a key that changes from call to call has to be a tensor.
        position: the word of the stream to begin at, in [0, 2**56), rounded up to a multiple of 4.
        shard: what part ``tensor`` is of a larger one; not for a ``DTensor``, which knows.

    Returns:
        ``tensor``.

    Raises:
        TypeError: an argument has the wrong type, or the dtype has no such draw.
        ValueError: the tensor overlaps itself, the part does not lie in the logical tensor, a
            placement has no elements (Partial), or a number is out of range. Nothing has changed.
    """
    drawn = distributions.uniform("uniform_", low, high, _dtype("uniform_", tensor))
    return _fill("uniform_", tensor, key, position, shard, drawn)


def normal_(
    tensor: torch.Tensor,
    key: int | torch.Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    position: int = 0,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Fill with normal numbers: reals of 16, 32 or 64 bits. See :func:`uniform_`."""
    drawn = distributions.normal("normal_", mean, std, _dtype("normal_", tensor))
    return _fill("normal_", tensor, key, position, shard, drawn)


def exponential_(
    tensor: torch.Tensor,
    key: int | torch.Tensor,
    rate: float = 1.0,
    *,
    position: int = 0,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Fill with exponential numbers of a rate: reals of 16, 32 or 64 bits. See :func:`uniform_`."""
    drawn = distributions.exponential("exponential_", rate, _dtype("exponential_", tensor))
    return _fill("exponential_", tensor, key, position, shard, drawn)


def bernoulli_(
    tensor: torch.Tensor,
    key: int | torch.Tensor,
    p: float = 0.5,
    *,
    position: int = 0,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Fill with ones of probability ``p`` and zeros: bool, uint8 or reals. See :func:`uniform_`."""
    drawn = distributions.bernoulli("bernoulli_", p, _dtype("bernoulli_", tensor))
    return _fill("bernoulli_", tensor, key, position, shard, drawn)


def randint_(
    tensor: torch.Tensor,
    key: int | torch.Tensor,
    low: int,
    high: int,
    *,
    position: int = 0,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Fill with integers of [low, high), without bias: uint8, int32 or int64. See
    :func:`uniform_`."""
    drawn = distributions.randint("randint_", low, high, _dtype("randint_", tensor))
    return _fill("randint_", tensor, key, position, shard, drawn)


def bits_(
    tensor: torch.Tensor,
    key: int | torch.Tensor,
    *,
    position: int = 0,
    shard: Shard | None = None,
) -> torch.Tensor:
    """Fill with the words of the stream: uint32 or uint64. See :func:`uniform_`."""
    drawn = distributions.bits("bits_", _dtype("bits_", tensor))
    return _fill("bits_", tensor, key, position, shard, drawn)


# ---------------------------------------------------------------- what they share


def _dtype(function: str, tensor: Any) -> torch.dtype:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"fastseed.{function}: tensor must be a torch.Tensor, "
            f"got {validation.describe(tensor)} of type {type(tensor).__name__}"
        )
    return tensor.dtype


def _fill(
    function: str,
    tensor: torch.Tensor,
    key: int | torch.Tensor,
    position: int,
    shard: Shard | None,
    drawn: Distribution,
) -> torch.Tensor:
    key = _check_key(function, key)
    with torch.no_grad():
        local, pieces = _pieces(function, tensor, shard)
        functional.check_device(function, "tensor", local.device)
        functional.check_memory(function, "tensor", local)
        whole = tensor.shape if shard is None else shard.global_shape
        position = _check_position(function, position, drawn.advance(math.prod(whole)))
        if pieces and local.numel():
            _write_all(drawn, local, pieces, key, position)
        functional.written_to(tensor)
        if local is not tensor:
            functional.written_to(local)
    return tensor


def _pieces(
    function: str, tensor: torch.Tensor, shard: Shard | None
) -> tuple[torch.Tensor, list[shards.Piece]]:
    """(the tensor to write to, what goes where)."""
    if shards.is_dtensor(tensor):
        if shard is not None:
            raise ValueError(
                f"fastseed.{function}: shard must be None for a DTensor, which knows its part, "
                f"got {validation.describe(shard)}"
            )
        return shards.of_dtensor(function, tensor)
    if shard is None:
        return tensor, shards.WHOLE
    return tensor, shards.of_shard(function, tensor.shape, shard)


def _check_key(function: str, key: Any) -> int | torch.Tensor:
    if not isinstance(key, torch.Tensor):
        return validation.check_int(function, "key", key, 0, MAX_KEY)
    if key.dtype != torch.uint64:
        raise TypeError(
            f"fastseed.{function}: key must be an integer or a uint64 tensor, got {key.dtype}"
        )
    if tuple(key.shape) != (2,):
        raise ValueError(
            f"fastseed.{function}: key must have the shape (2,), got {tuple(key.shape)}"
        )
    return key


def _check_position(function: str, position: Any, advance: int) -> int:
    """``position``, from which a draw that moves it by ``advance`` ends within the stream."""
    last = (MAX_WORDS - advance) // 4 * 4
    return validation.check_int(function, "position", position, 0, last)


def _write_all(
    drawn: Distribution,
    local: torch.Tensor,
    pieces: list[shards.Piece],
    key: int | torch.Tensor,
    position: int,
) -> None:
    """Fill the boxes of ``pieces`` in ``local``, of any strides."""
    keys = _keys(key, local.device)
    at = torch.full((1,), position, dtype=torch.int64, device=local.device) if position else None
    for box, sizes, strides, offset in pieces:
        view = local[box] if box else local
        direct = view.is_contiguous() and not functional.is_negated(view)
        out = view if direct else torch.empty(view.shape, dtype=view.dtype, device=view.device)
        _draw(drawn, out, keys, at, sizes, strides, offset)
        if not direct:
            view.copy_(out)


def _keys(key: int | torch.Tensor, device: torch.device) -> torch.Tensor:
    """(1, 2) uint64 on ``device``; an integer gets there without a copy from the host."""
    if isinstance(key, torch.Tensor):
        return key.to(device).contiguous().view(1, 2)
    keys = torch.empty((1, 2), dtype=torch.int64, device=device)
    for i in range(2):
        half = key >> 64 * i & 2**64 - 1
        keys[0, i] = half - 2**64 if half >> 63 else half
    return keys.view(torch.uint64)


def _draw(
    drawn: Distribution,
    out: torch.Tensor,
    keys: torch.Tensor,
    positions: torch.Tensor | None,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
) -> None:
    if len(sizes) <= MAX_AXES:
        drawn.fill(out, keys, positions, sizes, strides, offset)
        return
    for i, row in enumerate(out.view(sizes)):
        _draw(drawn, row, keys, positions, sizes[1:], strides[1:], offset + i * strides[0])
