"""The functions that derive keys and seeds, with the one ``Seeder`` of the process."""

from __future__ import annotations

import torch

from ..derivation.reserved import warn_if_derived
from .seeder import current_seeder


def derive_key(
    name: str,
    *,
    task: int,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    index: int = 0,
) -> int:
    """Return the 128-bit key of a stream, without touching any generator.

    Args:
        name: the stream's name, registered or not.
        task: [0, 2**24).
        epoch: [0, 2**32).
        step: [0, 2**64).
        rank: [0, 2**24 - 1), or ``fastseed.SHARED``. None: the one that ``name`` has on this rank:
            the rank, its index in the mesh, or ``SHARED``.
        worker: 0 is the main process, k + 1 DataLoader worker k.
        index: the member of a group of streams; 0 for a single generator.

    Returns:
        An integer in [0, 2**128).

    Raises:
        TypeError, ValueError: an argument is invalid, or the scheme is ``"fwr13y"``, which has no
            keys; nothing is written.
        RuntimeError: before ``init``.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> key = fastseed.derive_key("dropout", task=1, epoch=3)
        >>> key == fastseed.derive_key("dropout", task=1, epoch=4)
        False
    """
    warn_if_derived("derive_key", name)
    return current_seeder("derive_key").derive_key(
        name, task=task, epoch=epoch, step=step, rank=rank, worker=worker, index=index
    )


def derive_seed(
    name: str,
    *,
    task: int,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    index: int = 0,
) -> int:
    """Return a 64-bit seed of a stream: the low 64 bits of its key.

    The arguments and errors are those of ``fastseed.derive_key``.

    Returns:
        An integer in [0, 2**64).

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> seed = fastseed.derive_seed("request", task=1, index=7)
        >>> seed == fastseed.derive_key("request", task=1, index=7) % 2**64
        True
    """
    warn_if_derived("derive_seed", name)
    return current_seeder("derive_seed").derive_seed(
        name, task=task, epoch=epoch, step=step, rank=rank, worker=worker, index=index
    )


def derive_keys(
    name: str,
    n: int,
    *,
    task: int,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    start: int = 0,
    out: torch.Tensor | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """Return the keys of ``n`` members of a group of streams.

    The errors, and the arguments that are not listed, are those of ``fastseed.derive_key``.

    Args:
        n: the number of keys, at most 2**40.
        start: the index of the first member.
        out: write here: shape (n, 2), torch.uint64, any device and strides.
        device: where the result is, by default the CPU. Keys are derived there if it is a CUDA
            device and the CUDA part was built; else on the CPU, and copied.

    Returns:
        Shape (n, 2), torch.uint64: low and high half of each key.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> keys = fastseed.derive_keys("prompts", 3, task=1)
        >>> lo, hi = keys[2].tolist()
        >>> lo | hi << 64 == fastseed.derive_key("prompts", task=1, index=2)
        True
    """
    warn_if_derived("derive_keys", name)
    return current_seeder("derive_keys").derive_keys(
        name, n, task=task, epoch=epoch, step=step, rank=rank, worker=worker,
        start=start, out=out, device=device,
    )  # fmt: skip


def derive_seeds(
    name: str,
    n: int,
    *,
    task: int,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    start: int = 0,
    out: torch.Tensor | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """Return 64-bit seeds of ``n`` members of a group of streams: the low halves of their keys.

    The arguments and errors are those of ``fastseed.derive_key`` and ``fastseed.derive_keys``, but
    ``out`` has shape (n,).

    Returns:
        Shape (n,), torch.uint64.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> seeds = fastseed.derive_seeds("prompts", 3, task=1)
        >>> seeds[2].item() == fastseed.derive_seed("prompts", task=1, index=2)
        True
    """
    warn_if_derived("derive_seeds", name)
    return current_seeder("derive_seeds").derive_seeds(
        name, n, task=task, epoch=epoch, step=step, rank=rank, worker=worker,
        start=start, out=out, device=device,
    )  # fmt: skip


def derive_scope_key(
    task: int,
    epoch: int = 0,
    step: int = 0,
    *,
    out: torch.Tensor | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """Return the scope (task, epoch, step) as a tensor, for ``StreamBank.reseed_from_scope``.

    The keys of all streams of all ranks at that point of the job follow from it. Written into
    ``out`` between two replays of a CUDA graph, it moves the graph to another point.

    Args:
        task: [0, 2**24).
        epoch: [0, 2**32).
        step: [0, 2**64).
        out: write here: shape (2,), torch.uint64, any device and strides.
        device: where the result is, by default the CPU.

    Returns:
        Shape (2,), torch.uint64: key and tweak.

    Raises:
        TypeError, ValueError, RuntimeError: as ``fastseed.derive_key``; also RuntimeError while
            a CUDA graph is captured.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> bank = fastseed.random.StreamBank(4, "noise")
        >>> bank.reseed_from_scope(fastseed.derive_scope_key(task=1, epoch=3))
        >>> bank.uniform(2).shape
        torch.Size([4, 2])
    """
    return current_seeder("derive_scope_key").derive_scope_key(
        task, epoch, step, out=out, device=device
    )
