"""The process-wide context: the Seeder that ``fastseed.init`` made, which all threads share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from .._utils.log import logger
from .scopes import Scope

if TYPE_CHECKING:
    from ..seeder.seeder import Seeder

seeder: Seeder | None = None
"""The process-wide Seeder; None before ``fastseed.init``. A forked child has its parent's."""


fork_count = 0
"""How many calls of ``os.fork`` lie between this process and the one that loaded fastseed."""


def _count_fork() -> None:
    global fork_count
    fork_count += 1


os.register_at_fork(after_in_child=_count_fork)


_observers: list[Callable[[], None]] = []


def set_current(new: Seeder | None) -> None:
    """Make ``new`` the process-wide seeder; None as before ``fastseed.init``."""
    global seeder
    seeder = new
    scope_changed(new)


def observe_scope(observer: Callable[[], None]) -> None:
    """Call ``observer()`` after each time that the process-wide seeder moved to a scope."""
    _observers.append(observer)


def scope_changed(changed: Seeder | None) -> None:
    """Call the observers, if ``changed`` is the process-wide seeder."""
    for observer in _observers if changed is seeder else ():
        observer()


def current(function: str) -> Seeder:
    """Return the process-wide seeder; RuntimeError before ``fastseed.init``."""
    if seeder is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.init(...) first")
    return seeder


def scope_of(seeder: Seeder, function: str, instead: str = "") -> Scope:
    """Return the scope of the last ``reseed``; RuntimeError before it. ``instead`` helps there."""
    if seeder.scope is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.reseed(task, epoch) first{instead}")
    if seeder.fork_count != fork_count:
        warn_in_child(seeder, function)
    return seeder.scope


def warn_in_child(seeder: Seeder, function: str) -> None:
    """Log one warning in a forked child, whose siblings draw the same until it reseeds."""
    seeder.fork_count = fork_count
    if not in_worker():
        logger.warning(
            "fastseed.%s: this process was forked and did not call reseed, so it draws what its "
            "parent and its siblings draw: call fastseed.reseed(task=1000 + i, epoch=...) in child "
            "i, or give each rollout its fastseed.rollouts.seed(step, prompt, sample)",
            function,
        )


def in_worker() -> bool:
    """Return whether this process is a DataLoader worker."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


_WORKERS = "workers have streams already (fastseed.data.worker_init_fn, fastseed.data.Loader)"


def refuse_worker(function: str, instead: str = _WORKERS) -> None:
    """Raise RuntimeError in a DataLoader worker."""
    if in_worker():
        raise RuntimeError(
            f"fastseed.{function}: must not be called in a DataLoader worker, where all workers "
            f"would draw the same; {instead}"
        )


def origin(function: str, name: str, instead: str) -> tuple[int, int]:
    """Return the master seed, and the rank field of the stream ``name`` on this rank.

    RuntimeError before ``fastseed.init`` and in a DataLoader worker, where the function ``instead``
    serves.
    """
    found = current(function)
    # Dynamo does not trace the check: code that is compiled runs in the main process.
    if "torch" not in sys.modules or not sys.modules["torch"].compiler.is_compiling():
        register = "or register it before the workers start (fastseed.register_generator)"
        refuse_worker(function, f"call {instead}, {register}")
    return found.master_seed, found._rank_fields.of(name)
