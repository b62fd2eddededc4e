"""Rank and world size of this process."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

import torch.distributed as dist

from .._utils import environ, validation
from .._utils.log import logger
from ..derivation import scopes
from . import rendezvous

# (rank, world size, rank within the node); the first launcher whose first two are set counts.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun, Accelerate, Lightning
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),  # srun sets the second, not sbatch
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)


class ProcessRank(NamedTuple):
    """The rank of a process in its job."""

    rank: int
    world_size: int
    source: str
    """The origin of these two, as in ``discover_rank``."""
    local_rank: int | None = None
    """The rank within the node; None where that is not known."""


def process_group_size() -> int:
    """Return the size of the process group of this process; 1 without one."""
    return dist.get_world_size() if rendezvous.has_group() else 1


def discover_rank() -> ProcessRank:
    """Return rank and world size as ``fastseed.init`` finds them without arguments.

    Returns:
        A named tuple ``(rank, world_size, source, local_rank)``: from torch.distributed where it is
        initialized, Ray Train in one of its workers, the variables of a launcher (torchrun, srun,
        Open MPI, PMI), or Horovod where it is initialized; else rank 0 of 1, source ``"default"``.

    Raises:
        ValueError: a launcher's variable is not an integer, or the rank is not below the size.

    Examples:
        >>> from fastseed.distributed import discover_rank
        >>> here = discover_rank()
        >>> 0 <= here.rank < here.world_size
        True
    """
    return find_rank("distributed.discover_rank")


def find_rank(function: str) -> ProcessRank:
    """Do ``discover_rank`` for another function, whose name errors have."""
    if dist.is_available() and dist.is_initialized():
        return ProcessRank(dist.get_rank(), dist.get_world_size(), "torch.distributed")
    if (in_ray := _in_ray_worker(function)) is not None:
        return in_ray  # it may have inherited a launcher's variables
    for rank, size, local in _LAUNCHERS:
        if environ.get(rank) and environ.get(size):
            local_rank = _variable(function, local) if environ.get(local) else None
            place = _variable(function, rank), _variable(function, size)
            return _check(function, ProcessRank(*place, f"{rank}/{size}", local_rank))
    horovod: Any = sys.modules.get("horovod.torch")
    if horovod is not None and horovod.is_initialized():
        return ProcessRank(horovod.rank(), horovod.size(), "horovod")
    return ProcessRank(0, 1, "default")


def _in_ray_worker(function: str) -> ProcessRank | None:
    """Return the rank in a worker of Ray Train; None in any other process."""
    train: Any = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, size, local_rank = (
            getattr(context, f"get_{name}")() for name in ("world_rank", "world_size", "local_rank")
        )
    except (RuntimeError, DeprecationWarning):  # a driver; a function that Ray Tune runs
        return None
    found = ProcessRank(rank, size, "ray.train", local_rank)
    return None if size is None else _check(function, found)


def _variable(function: str, name: str) -> int:
    text = os.environ[name]
    try:
        return int(text)
    except ValueError as error:
        variable = f"environment variable {name}"
        raise validation.value_error(function, variable, "an integer", text) from error


def _check(function: str, found: ProcessRank) -> ProcessRank:
    where = f" (from {found.source})"
    size = found.world_size
    validation.check_int(function, f"world_size{where}", size, 1, scopes.MAX_RANK + 1)
    validation.check_int(function, f"rank{where}", found.rank, 0, size - 1)
    return found


def locate(
    function: str,
    ngpus: int | None,
    local_rank: int | None,
    rank: int | None,
    world_size: int | None,
    *,
    correct: bool = True,
) -> ProcessRank:
    """Return the rank of this process, from the arguments of ``init`` and from its environment.

    fwr13y's ``ngpus`` and ``local_rank`` are documented as global but are often a node's. Where the
    environment knows a larger world, it is used instead, with a warning (``correct=False``: a
    warning only), unless it names another rank within the node: that of the parent process.
    """
    explicit = rank is not None or world_size is not None
    size = _one_of(function, "ngpus", ngpus, "world_size", world_size, 1)
    here = _one_of(function, "local_rank", local_rank, "rank", rank, 0)
    if explicit and size is not None and here is not None:
        return _check(function, ProcessRank(here, size, "arguments"))
    found = find_rank(function)
    if rank is not None and size is None and found.world_size <= rank:
        rule = f"given with rank={rank}, since {found.source} shows {found.world_size} rank(s)"
        raise validation.value_error(function, "world_size", rule, None)
    if size not in (None, 1) and here is None and found.source == "default":
        logger.warning(
            "fastseed.%s: %d ranks were given without a rank, and neither torch.distributed nor "
            "a launcher shows one: this process uses rank 0, and processes of one rank draw the "
            "same random numbers; pass rank=",
            *(function, size),
        )
    size = found.world_size if size is None else size
    here = found.rank if here is None else here
    given = ProcessRank(here, size, "arguments")
    if (here, size) == found[:2] and not explicit:
        return found
    if explicit or found.world_size < size or found.world_size == 1:
        return _check(function, given)  # the environment knows no more than the caller
    is_parent = size == found.world_size and found.local_rank not in (None, here)
    correct = correct and not is_parent
    used = "former: if they are a node's, nodes repeat each other's seeds"
    if correct:
        used = "latter, so that no two nodes repeat each other's seeds"
    logger.warning(
        "fastseed.%s: local_rank=%d of ngpus=%d were given, but %s says rank %d of %d; using "
        "the %s",
        *(function, here, size, found.source, found.rank, found.world_size, used),
    )
    return found if correct else _check(function, given)


def _one_of(
    function: str, alias: str, other: int | None, argument: str, value: int | None, low: int
) -> int | None:
    """Return the value of an argument of ``init``, or of fwr13y's argument for the same number."""
    top = scopes.MAX_RANK + low
    if value is not None:
        value = validation.check_int(function, argument, value, low, top)
    if other is not None:
        other = validation.check_int(function, alias, other, low, top)
        if value not in (None, other):
            rule = f"{argument} ({value}), or not given"
            raise validation.value_error(function, alias, rule, other)
        value = other
    return value
