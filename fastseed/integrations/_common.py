"""What the callbacks have in common: which task a phase is, and how to go from one to another."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch.distributed as dist

from .._utils import validation
from ..derivation import context, streams
from ..seeder import api
from ..seeder import state as states
from ..seeder.seeder import Seeder


class Tasks(NamedTuple):
    """The task number of each phase of a job, [0, 2**24); different ones, so that none repeats
    another's random numbers."""

    init: int = 0
    train: int = 1
    validate: int = 2
    test: int = 3
    predict: int = 4


def check_tasks(function: str, tasks: Any) -> Tasks:
    """``tasks``, or raises."""
    if not isinstance(tasks, Tasks):
        raise TypeError(
            f"fastseed.{function}: tasks must be a fastseed.integrations.Tasks, "
            f"got {validation.describe(tasks)} of type {type(tasks).__name__}"
        )
    for name, task in zip(Tasks._fields, tasks, strict=True):
        validation.check_int(function, f"tasks.{name}", task, 0, streams.MAX_TASK)
    if len(set(tasks)) < len(tasks):
        raise ValueError(
            f"fastseed.{function}: tasks must be different numbers, got {tuple(tasks)}"
        )
    return tasks


def require(module: str, extra: str) -> Any:
    """Another library's module; an ImportError that names the extra where it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it is installed, and lacks something itself
        raise ImportError(
            f"fastseed.integrations.{extra} needs the package {module.partition('.')[0]!r}: "
            f'pip install "fastseed[{extra}]"',
            name=error.name,
        ) from error


def ensure(function: str, master_seed: int | None, rank: int, world_size: int) -> Seeder:
    """The process-wide seeder, on the framework's rank; ``init`` is called where it was not.

    Raises:
        TypeError, ValueError: ``master_seed`` is none, or not the one that ``init`` was given.
        RuntimeError: ``init`` was called for another rank, and what was told it since (a mesh,
            registered generators) would be lost by calling it again.
    """
    seeder = context.seeder
    if master_seed is not None:
        validation.check_int(function, "master_seed", master_seed, 0, streams.MAX_MASTER)
        if seeder is not None and seeder.master_seed != master_seed:
            raise ValueError(
                f"fastseed.{function}: master_seed must be that of fastseed.init, "
                f"{seeder.master_seed}, or left out, got {master_seed}"
            )
    if seeder is None:
        api.init(master_seed, rank=rank, world_size=world_size)
    elif (seeder.rank, seeder.world_size) != (rank, world_size):
        _move(function, seeder, rank, world_size)
    found: Seeder = context.current(function)
    return found


def _move(function: str, seeder: Seeder, rank: int, world_size: int) -> None:
    """A script that starts its own ranks calls ``init`` before there are any."""
    if seeder.mesh is not None or len(list(seeder.registry)):
        raise RuntimeError(
            f"fastseed.{function}: fastseed.init was called for rank {seeder.rank} of "
            f"{seeder.world_size}, but this is rank {rank} of {world_size}: call it with rank= "
            "and world_size=, or register generators (and give a mesh) after the framework has "
            "set up its ranks"
        )
    api.init(
        seeder.master_seed,
        rank=rank,
        world_size=world_size,
        scheme=seeder.scheme,
        on_os_fork=seeder.on_os_fork,
    )


def go(task: int, epoch: int, step: int = 0) -> None:
    """As ``reseed``; frameworks come back to a scope on purpose, so repetitions are no matter."""
    api.current("reseed").restore(task, epoch, step)


@contextlib.contextmanager
def inside(task: int, epoch: int = 0, step: int = 0) -> Iterator[None]:
    """Run a block in another task; afterwards every generator is exactly as it was.

        with fastseed.integrations.inside(2, epoch):
            validate(model)

    So what is done inside changes nothing outside. Registered callables have no state to put back:
    they are called with their seed of the outer scope again.

    Raises:
        TypeError, ValueError: a coordinate is none; nothing has changed.
        RuntimeError: before ``init``.
    """
    before = api.current("integrations.inside").state_dict(rng=True)
    go(task, epoch, step)
    try:
        yield
    finally:
        api.load_state_dict(before)


def of_all_ranks(state: dict[str, Any]) -> dict[str, Any]:
    """``state`` with the exact states of the other ranks: what one rank writes for all.

    A collective call, where there are several ranks.
    """
    if not (dist.is_available() and dist.is_initialized()) or state["world_size"] == 1:
        return state
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, state)
    merged: dict[str, Any] = {}
    for part in parts:
        merged.update((key, held) for key, held in part.items() if key.startswith(states.RNG))
    return {**state, **merged}
