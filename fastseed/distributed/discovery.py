"""Who am I among the ranks of this job, and do we agree on the master seed?"""

from __future__ import annotations

import logging
import os
import secrets
import sys
from typing import Any, NamedTuple, NoReturn

import torch.distributed as dist

from .._utils import validation
from ..derivation import streams

logger = logging.getLogger("fastseed")

# Launchers' variables (rank, world size, rank within the node), in the order in which they are
# believed.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun, Accelerate, Lightning
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)


class Place(NamedTuple):
    """A process among the processes of its job."""

    rank: int
    world_size: int
    source: str
    local_rank: int | None = None  # within its node, where that is known


def _variable(name: str) -> int:
    text = os.environ[name]
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(
            f"fastseed.init: environment variable {name} must be an integer, got {text!r}"
        ) from error


def process_group_size() -> int:
    """The size of the default process group; 1 when there is none."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return 1


def discover() -> Place:
    """Rank and world size: from torch.distributed, a launcher's variables or Horovod; else 0 of 1.

    Raises:
        ValueError: a launcher's variable is no integer, or a rank is not below its world size.
    """
    if dist.is_available() and dist.is_initialized():
        return Place(dist.get_rank(), dist.get_world_size(), "torch.distributed")
    for rank, size, local in _LAUNCHERS:
        if rank in os.environ and size in os.environ:
            local_rank = _variable(local) if local in os.environ else None
            return _check(Place(_variable(rank), _variable(size), f"{rank}/{size}", local_rank))
    horovod: Any = sys.modules.get("horovod.torch")
    if horovod is not None and horovod.is_initialized():
        return Place(horovod.rank(), horovod.size(), "horovod")
    return Place(0, 1, "default")


def _check(place: Place) -> Place:
    if not 1 <= place.world_size <= streams.MAX_RANK + 1:
        raise ValueError(
            f"fastseed.init: world_size must be in [1, {streams.MAX_RANK + 1}], "
            f"got {place.world_size} (from {place.source})"
        )
    if not 0 <= place.rank < place.world_size:
        raise ValueError(
            f"fastseed.init: rank must be in [0, {place.world_size}), "
            f"got {place.rank} (from {place.source})"
        )
    return place


def locate(ngpus: Any, local_rank: Any, rank: Any, world_size: Any, *, correct: bool) -> Place:
    """This process's place, from the arguments of ``init`` and what the environment says.

    ``rank`` and ``world_size`` are believed. ``local_rank`` and ``ngpus``, the predecessor's, are
    meant to be the global ones but often are a node's: then every node would repeat the seeds of
    the first. Where the environment knows a larger world in which they are not this process's,
    they are corrected, with a warning (with ``correct=False`` only the warning is given). Not so
    where the environment names another rank within the node: it then speaks of another process.
    """
    given_size = None if ngpus is None else _int("ngpus", ngpus, 1)
    given_rank = None if local_rank is None else _int("local_rank", local_rank, 0)
    if rank is not None or world_size is not None:
        return _believe(rank, world_size)
    found = discover()
    size = found.world_size if given_size is None else given_size
    here = found.rank if given_rank is None else given_rank
    if (here, size) == found[:2]:
        return found
    given = Place(here, size, "arguments")
    if found.world_size < size or found.world_size == 1:
        return _check(given)  # the environment knows less than the caller
    # Processes that were spawned from one task of a launcher all see that task's variables, which
    # then contradict the arguments about the node's rank too: they are not about this process.
    about_us = size != found.world_size or found.local_rank in (None, here)
    logger.warning(
        "fastseed.init: local_rank=%d of ngpus=%d were given, but %s says rank %d of %d; %s",
        here,
        size,
        found.source,
        found.rank,
        found.world_size,
        "using the latter, so that no two nodes repeat each other's seeds"
        if correct and about_us
        else "using the former: where they are a node's, nodes repeat each other's seeds",
    )
    return found if correct and about_us else _check(given)


def _believe(rank: Any, world_size: Any) -> Place:
    """The arguments; the environment is asked only for what is missing."""
    size = None if world_size is None else _int("world_size", world_size, 1)
    here = None if rank is None else _int("rank", rank, 0)
    size = discover().world_size if size is None else size
    here = discover().rank if here is None else here
    return _check(Place(here, size, "arguments"))


def _int(argument: str, value: Any, low: int) -> int:
    return validation.check_int("init", argument, value, low, streams.MAX_RANK + low)


def draw_master_seed(bits: int) -> int:
    """A fresh master seed from the operating system, of ``bits`` bits."""
    return secrets.randbits(bits)


def refuse(problem: Exception, world_size: Any) -> NoReturn:
    """Raise it, once the ranks that wait in :func:`agree_on_master` know of it.

    Args:
        problem: what is wrong with the arguments of ``init`` on this rank.
        world_size: the argument; None where it was not given.
    """
    there = process_group_size()
    if world_size is None or world_size == there:  # else the others are not in there either
        agree_on_master(None, there, 1, problem)
    raise problem


def agree_on_master(
    master: int | None, world_size: int, bits: int, problem: Exception | None = None
) -> tuple[int, bool]:
    """The master seed of this job, and whether every rank is known to use it.

    With a process group of ``world_size`` ranks this is a collective that every rank must enter:
    a seed that no rank gave is drawn on rank 0, and seeds that differ, or are none, are an error
    on every rank.

    Raises:
        ValueError: ranks were given different master seeds.
        Exception: ``problem``, what is wrong with this rank's, once the others know of it.
    """
    alone = world_size == 1 or process_group_size() != world_size
    if problem is not None and alone:
        raise problem
    if world_size == 1:
        return (draw_master_seed(bits) if master is None else master), True
    if alone:
        if master is None:
            logger.warning(
                "fastseed.init: master_seed is None and there is no process group of %d ranks to "
                "agree on one: each rank draws its own, and streams shared by ranks are refused; "
                "call torch.distributed.init_process_group first, or give a master seed",
                world_size,
            )
            return draw_master_seed(bits), False
        return master, True
    drawn = draw_master_seed(bits) if master is None and dist.get_rank() == 0 else None
    mine = (None if problem is not None else master, drawn, problem and str(problem))
    everyone: list[Any] = [None] * world_size
    dist.all_gather_object(everyone, mine)
    if problem is not None:
        raise problem
    wrong = [f"{text} (on rank {rank})" for rank, (_, _, text) in enumerate(everyone) if text]
    if wrong:
        raise ValueError(wrong[0])
    given = [seed for seed, _, _ in everyone]
    if all(seed is None for seed in given):
        return int(everyone[0][1]), True
    if any(seed != given[0] for seed in given):
        odd = next(rank for rank, seed in enumerate(given) if seed != given[0])
        raise ValueError(
            "fastseed.init: master_seed must be the same on every rank, "
            f"got {given[0]} on rank 0 and {given[odd]} on rank {odd}"
        )
    return int(given[0]), True
