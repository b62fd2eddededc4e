"""The order of an epoch as a function: which sample of a dataset is at which position.

It is a keyed bijection of [0, n) (``docs/derivation.md``, "Shuffle"), so any part of it can be
computed at once and no list of indices exists. It depends on the master seed, task, epoch, name
and n, not on the number of ranks or workers.
"""

from __future__ import annotations

from typing import Any

import torch

from .._backend import derive_ops, draw_ops, tensors
from .._utils import validation
from ..derivation import streams
from .iteration_scope import keyed_seeder

NAME = "shuffle"
MAX_N = 2**48


def check_n(function: str, n: Any) -> int:
    """Return the number of samples, checked."""
    return validation.check_int(function, "n", n, 1, MAX_N)


def order_key(function: str, n: int, task: Any, epoch: Any, name: str, master_seed: Any) -> int:
    """Return the 128-bit key of an order; ``n`` and ``name`` are not checked."""
    if master_seed is None:
        master_seed = keyed_seeder(function).master_seed
    else:
        master_seed = validation.check_int(
            function, "master_seed", master_seed, 0, streams.MAX_MASTER
        )
    at = streams.check_coordinates(function, task, epoch, 0)
    scope = derive_ops.scope_key(master_seed, *at)
    return derive_ops.shuffle_key(scope, streams.name_words(name), n)


def shuffled_index(
    i: int,
    n: int,
    *,
    task: int,
    epoch: int = 0,
    name: str = NAME,
    master_seed: int | None = None,
) -> int:
    """Return the sample at position ``i`` of an epoch's order, in constant time.

    Args:
        i: the position, [0, n).
        n: the number of samples, [1, 2**48].
        task: [0, 2**24), as for :func:`fastseed.reseed`.
        epoch: [0, 2**32).
        name: the name of the order; another name is another order.
        master_seed: [0, 2**64); None: the one that ``fastseed.init`` was given.

    Returns:
        An int of [0, n).

    Raises:
        TypeError, ValueError: an argument has the wrong type or is out of range.
        RuntimeError: ``master_seed`` is None and ``fastseed.init`` was not called.

    Example:
        >>> from fastseed.data import shuffled_index
        >>> [shuffled_index(i, 10, task=1, epoch=7, master_seed=42) for i in range(10)]
        [5, 0, 7, 2, 6, 9, 3, 8, 1, 4]
    """
    function = "data.shuffled_index"
    n, name = check_n(function, n), streams.check_name(function, name)
    i = validation.check_int(function, "i", i, 0, n - 1)
    return derive_ops.shuffle_index(order_key(function, n, task, epoch, name, master_seed), n, i)


def shuffled_position(
    j: int,
    n: int,
    *,
    task: int,
    epoch: int = 0,
    name: str = NAME,
    master_seed: int | None = None,
) -> int:
    """Return the position of sample ``j`` in an epoch's order: the inverse of shuffled_index.

    Args:
        j: the sample, [0, n).
        n: the number of samples, [1, 2**48].
        task: [0, 2**24), as for :func:`fastseed.reseed`.
        epoch: [0, 2**32).
        name: the name of the order; another name is another order.
        master_seed: [0, 2**64); None: the one that ``fastseed.init`` was given.

    Returns:
        An int of [0, n).

    Raises:
        TypeError, ValueError: an argument has the wrong type or is out of range.
        RuntimeError: ``master_seed`` is None and ``fastseed.init`` was not called.

    Example:
        >>> from fastseed.data import shuffled_position
        >>> shuffled_position(7, 10, task=1, epoch=7, master_seed=42)
        2
    """
    function = "data.shuffled_position"
    n, name = check_n(function, n), streams.check_name(function, name)
    j = validation.check_int(function, "j", j, 0, n - 1)
    return derive_ops.shuffle_position(order_key(function, n, task, epoch, name, master_seed), n, j)


def shuffled_indices(
    start: int,
    stop: int,
    n: int,
    *,
    task: int,
    epoch: int = 0,
    name: str = NAME,
    master_seed: int | None = None,
    out: torch.Tensor | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """Return the samples at positions ``start`` to ``stop - 1`` of an epoch's order.

    Args:
        start: [0, stop].
        stop: [0, n].
        n: the number of samples, [1, 2**48].
        task: [0, 2**24), as for :func:`fastseed.reseed`.
        epoch: [0, 2**32).
        name: the name of the order; another name is another order.
        master_seed: [0, 2**64); None: the one that ``fastseed.init`` was given.
        out: a tensor to write to: (stop - start,), torch.int64, any device and strides.
        device: the device of the result, the CPU by default. A CUDA device computes it itself if
            the CUDA part was built; otherwise it is computed on the CPU and copied.

    Returns:
        A tensor, (stop - start,), torch.int64; ``out`` if given.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape or device, or is out of
            range; ``out`` is unchanged.
        RuntimeError: ``master_seed`` is None and ``fastseed.init`` was not called; or a CUDA graph
            is being captured.

    Example:
        >>> from fastseed.data import shuffled_indices
        >>> shuffled_indices(4, 8, 10, task=1, epoch=7, master_seed=42)
        tensor([6, 9, 3, 8])
    """
    function = "data.shuffled_indices"
    n, name = check_n(function, n), streams.check_name(function, name)
    start, stop = check_range(function, start, stop, n)
    key = order_key(function, n, task, epoch, name, master_seed)
    return part_of_order(function, key, n, start, stop, out, device)


def check_range(function: str, start: Any, stop: Any, n: int) -> tuple[int, int]:
    """Return the bounds of a range of positions, checked."""
    stop = validation.check_int(function, "stop", stop, 0, n)
    return validation.check_int(function, "start", start, 0, stop), stop


def part_of_order(
    function: str,
    key: int | None,
    n: int,
    start: int,
    stop: int,
    out: torch.Tensor | None,
    device: torch.device | str | None,
) -> torch.Tensor:
    """Return what :func:`shuffled_indices` does; without a key, the positions themselves."""
    count = stop - start
    if out is not None:
        _check_out(function, out, count, device)
    where = out.device if out is not None else tensors.check_device(function, device)
    draw_ops.refuse_capture(function, where, "call it before the capture and copy the result")
    on_cuda = where.type == "cuda" and draw_ops.has_cuda
    if out is not None and out.is_contiguous() and (on_cuda or where.type == "cpu"):
        target = out
    elif on_cuda:
        target = torch.empty(count, dtype=torch.int64, device=where)
    else:
        target = derive_ops.empty_like_keys(count, dtype=torch.int64)
    if key is None:
        torch.arange(start, stop, out=target)
    else:
        derive_ops.fill_shuffle(target, key, n, start, 1)
    if out is None:
        return target.to(where)
    return out if target is out else out.copy_(target)


def _check_out(function: str, out: Any, count: int, device: torch.device | str | None) -> None:
    where = None if device is None else tensors.check_device(function, device)
    tensors.check_out(function, "out", out, (count,), torch.int64, where)
