"""Several ranks that write one file: bytes travel as tensors, and every rank hears of a failure."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from ..distributed import discovery

_FAILED = -1


def check_group(function: str, world_size: int) -> None:
    """RuntimeError unless there is a process group of all ranks."""
    there = discovery.process_group_size()
    if there != world_size:
        raise RuntimeError(
            f"fastseed.{function}: {world_size} ranks must have a process group of that size to "
            f"write one file, got {there}; call torch.distributed.init_process_group "
            "first, or put {rank} into the path, so that each writes its own"
        )


def together(
    function: str, make: Callable[[], bytes], write: Callable[[list[bytes]], None]
) -> None:
    """Rank 0 calls ``write`` with what ``make`` gave on each rank; all return when it has.

    Raises:
        Exception: what ``make`` or ``write`` raised on this rank.
        RuntimeError: another rank failed; it is named.
    """
    device = _device()
    problem: Exception | None = None
    data = b""
    try:
        data = make()
    except Exception as error:  # the other ranks have to hear of it
        problem = error
    mine = torch.tensor([_FAILED if problem else len(data)], dtype=torch.int64, device=device)
    sizes = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    try:
        dist.all_gather(sizes, mine)
    except RuntimeError as error:  # of the group's time-out, most often
        raise RuntimeError(
            f"fastseed.{function}: the ranks did not meet; every rank has to call it, "
            f"not rank 0 alone, or put {{rank}} into the path: {error}"
        ) from error
    lengths = [int(size) for size in sizes]
    if problem is not None:
        raise problem
    failed = [rank for rank, length in enumerate(lengths) if length == _FAILED]
    if failed:
        raise RuntimeError(f"fastseed.{function}: ranks {failed} could not give their state")
    parts = _gather(data, lengths, device)
    if parts is not None:
        try:
            write(parts)
        except Exception as error:
            problem = error
    outcome = torch.tensor([problem is not None], dtype=torch.uint8, device=device)
    dist.broadcast(outcome, 0)
    if problem is not None:
        raise problem
    if outcome.item():
        raise RuntimeError(f"fastseed.{function}: rank 0 could not write; its error says why")


def _device() -> torch.device:
    """Where the process group can send tensors from."""
    group = dist.group.WORLD
    kinds = {str(kind.type) for kind in group._device_types} if group is not None else {"cpu"}
    if "cpu" in kinds:
        return torch.device("cpu")
    found = torch.accelerator.current_accelerator()
    assert found is not None, "a process group of devices that are not here"
    return torch.device(found.type, torch.accelerator.current_device_index())


def _gather(data: bytes, lengths: list[int], device: torch.device) -> list[bytes] | None:
    """On rank 0 the bytes of each rank, else None."""
    padded = torch.frombuffer(bytearray(data.ljust(max(lengths))), dtype=torch.uint8).to(device)
    if dist.get_rank() != 0:
        dist.gather(padded, dst=0)
        return None
    received = [torch.empty_like(padded) for _ in lengths]
    dist.gather(padded, received, dst=0)
    every = zip(received, lengths, strict=True)
    return [held[:length].cpu().numpy().tobytes() for held, length in every]
