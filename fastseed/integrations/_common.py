"""The tasks of a framework's phases, and how the callbacks move from one to another."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from .._utils import validation
from ..derivation import context, scopes, streams
from ..seeder import api
from ..seeder.seeder import Seeder, current_seeder
from ..seeder.start import start

INIT, TRAIN, VALIDATE, TEST, PREDICT = range(5)
"""The tasks of a job's phases."""


def import_framework(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it is installed, and one of its own imports fails
        text = f"fastseed.integrations.{extra} needs {module}: pip install {module}"
        raise ImportError(text, name=error.name) from error


def ensure_seeder(function: str, master_seed: int | None, rank: int, world_size: int) -> Seeder:
    """Return the process-wide seeder on the framework's rank; call ``init`` if needed."""
    if context.seeder is None:
        api.init(master_seed, rank=rank, world_size=world_size)
    seeder = current_seeder(function)
    if master_seed not in (None, seeder.master_seed):
        rule = f"that of fastseed.init, {seeder.master_seed}, or None"
        raise validation.value_error(function, "master_seed", rule, master_seed)
    if (seeder.rank, seeder.world_size) == (rank, world_size):
        return seeder
    if seeder.mesh is not None or len(seeder.generators.registry):  # ranks were started after init
        raise RuntimeError(
            f"fastseed.{function}: fastseed.init was called for rank {seeder.rank} of "
            f"{seeder.world_size}, but this is rank {rank} of {world_size}: call it with rank= "
            "and world_size="
        )
    over = seeder.job.distinct_over
    return start(seeder.master_seed, None, None, rank, world_size, None, None, over)


def order_key(function: str, name: str, task: int, epoch: int = 0) -> int:
    at = scopes.Scope(task, epoch, 0)
    return streams.stream(current_seeder(function).master_seed, at, name, scopes.SHARED).key()


def move_to(task: int, epoch: int, step: int = 0) -> None:
    """Reseed without the warning for a repeated scope: frameworks return to scopes on purpose."""
    current_seeder("reseed").move(task, epoch, step)


@contextlib.contextmanager
def run_in_task(task: int, epoch: int = 0, step: int = 0) -> Iterator[None]:
    """Run a block in another task; afterwards every generator is exactly as it was before.

    A registered callable has no state to restore: it is called with its seed of the outer scope
    again. No other thread may draw or reseed meanwhile.

    Args:
        task: [0, 2**24).
        epoch: [0, 2**32).
        step: [0, 2**64).

    Raises:
        TypeError, ValueError, RuntimeError: an argument is invalid; ``init`` was not called.

    Examples:
        >>> import fastseed, random
        >>> from fastseed.integrations import run_in_task
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> fastseed.reseed(1, 0)
        >>> before = random.getstate()
        >>> with run_in_task(2):
        ...     value = random.random()
        >>> random.getstate() == before
        True
    """
    function = "integrations.run_in_task"
    at = scopes.check_scope(function, task, epoch, step)
    before = current_seeder(function).state_dict(rng=True)
    try:
        move_to(*at)
        yield
    finally:
        try:
            api.load_state_dict(before)
        except BaseException:  # an interrupt waits until all is restored
            api.load_state_dict(before)
            raise
