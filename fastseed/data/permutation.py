"""The order of an epoch, as a function: which sample of a data set comes when.

It is a bijection of [0, n) with a key (``docs/derivation.md``, "Shuffle"), so that any part of it
is had at once, in no memory: a list of all samples never exists. It depends on the master seed,
task, epoch, name and n; not on the number of ranks or workers.
"""

from __future__ import annotations

from typing import Any

import torch

from .._backend import derive_ops, draw_ops, tensors
from .._utils import validation
from ..derivation import streams
from ..seeder import api

NAME = "shuffle"
MAX_N = 2**48


def check_n(function: str, n: Any) -> int:
    """The number of samples: [1, 2**48]."""
    return validation.check_int(function, "n", n, 1, MAX_N)


def order_key(function: str, n: int, task: Any, epoch: Any, name: str, master_seed: Any) -> int:
    """The 128-bit key of an order. ``n`` and ``name`` are trusted."""
    if master_seed is None:
        seeder = api.current(function)
        if seeder.scheme != "philox-v1":
            raise ValueError(
                f"fastseed.{function}: scheme must be 'philox-v1', got {seeder.scheme!r}"
            )
        master_seed = seeder.master_seed
    else:
        master_seed = validation.check_int(
            function, "master_seed", master_seed, 0, streams.MAX_MASTER
        )
    at = streams.check_coordinates(function, task, epoch, 0)
    return derive_ops.shuffle_key(derive_ops.scope_key(master_seed, *at), streams.name_words(name), n)


def shuffled_index(
    i: int,
    n: int,
    *,
    task: int,
    epoch: int = 0,
    name: str = NAME,
    master_seed: int | None = None,
) -> int:
    """Which sample is at position ``i`` of an epoch's order: an int of [0, n), in O(1).

    Args:
        i: [0, n).
        n: the number of samples, [1, 2**48].
        task: [0, 2**24), as for ``reseed``.
        epoch: [0, 2**32).
        name: of the order; another name is another order.
        master_seed: [0, 2**64). None: the job's.

    Raises:
        TypeError, ValueError: for an argument that is out of its range.
        RuntimeError: no ``master_seed``, and none of ``init``.
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
    """At which position of an epoch's order sample ``j`` comes: the inverse of shuffled_index.

    Arguments and errors are those of :func:`shuffled_index`.
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
    """The samples at positions ``start`` to ``stop - 1``: shape (stop - start,), torch.int64.

    Args:
        start: [0, stop].
        stop: [0, n].
        n: see :func:`shuffled_index`, as for ``task``, ``epoch``, ``name`` and ``master_seed``.
        task: see there.
        epoch: see there.
        name: see there.
        master_seed: see there.
        out: write here: shape (stop - start,), torch.int64, any device and strides.
        device: where the result shall be, the CPU unless given. It is computed there if that is a
            CUDA device and the CUDA part was built; else on the CPU, and copied.

    Raises:
        TypeError, ValueError: for an argument that is out of its range, or an ``out`` of the wrong
            dtype, shape or device; it has not changed.
        RuntimeError: no ``master_seed``, and none of ``init``; a CUDA graph is being captured.
    """
    function = "data.shuffled_indices"
    n, name = check_n(function, n), streams.check_name(function, name)
    start, stop = check_range(function, start, stop, n)
    key = order_key(function, n, task, epoch, name, master_seed)
    return part_of_order(function, key, n, start, stop, out, device)


def check_range(function: str, start: Any, stop: Any, n: int) -> tuple[int, int]:
    """Positions from ``start`` to ``stop - 1``."""
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
    """What :func:`shuffled_indices` returns; without a key, positions themselves."""
    count = stop - start
    if out is not None:
        _check_out(function, out, count, device)
    place = out.device if out is not None else tensors.check_device(function, device)
    draw_ops.refuse_capture(function, place, "call it before, and copy what it gives")
    on_cuda = place.type == "cuda" and draw_ops.has_cuda
    if out is not None and out.is_contiguous() and (on_cuda or place.type == "cpu"):
        target = out
    elif on_cuda:
        target = torch.empty(count, dtype=torch.int64, device=place)
    else:
        target = derive_ops.empty_like_keys(count, dtype=torch.int64)
    if key is None:
        torch.arange(start, stop, out=target)
    else:
        derive_ops.fill_shuffle(target, key, n, start, 1)
    if out is None:
        return target.to(place)
    return out if target is out else out.copy_(target)


def _check_out(function: str, out: Any, count: int, device: torch.device | str | None) -> None:
    where = None if device is None else tensors.check_device(function, device)
    tensors.check_out(function, "out", out, (count,), torch.int64, where)
