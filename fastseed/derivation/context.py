"""The process-wide context: the Seeder that ``fastseed.init`` made, which all threads share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._utils import forks
from .._utils.log import logger
from .scopes import Scope

if TYPE_CHECKING:
    from .place import Place

seeder: Any = None
"""The process-wide Seeder; None before ``fastseed.init``. A forked child has its parent's."""

following: set[Any] = set()
"""Draws of open blocks, whose ``has_moved`` says whether the scope is another one since then."""

_observers: list[Callable[[], None]] = []


def set_current(new: object) -> None:
    """Make ``new`` the process-wide seeder; None as before ``fastseed.init``."""
    global seeder
    seeder = new
    scope_changed(new)


def observe_scope(observer: Callable[[], None]) -> None:
    """Call ``observer()`` after each time that the process-wide seeder moved to a scope."""
    _observers.append(observer)


def scope_changed(changed: object) -> None:
    """Tell open blocks and observers, if ``changed`` is the process-wide seeder."""
    if changed is seeder:
        for draws in tuple(following):
            draws.has_moved = True
        for observer in _observers:
            observer()


def current(function: str) -> Any:
    """Return the process-wide seeder; RuntimeError before ``fastseed.init``."""
    if seeder is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.init(...) first")
    return seeder


def scope_of(place: Place, function: str, instead: str = "") -> Scope:
    """Return the scope of the last ``reseed``; RuntimeError before it. ``instead`` helps there."""
    if place.scope is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.reseed(task, epoch) first{instead}")
    if place.forks != forks.count:
        warn_in_child(place, function)
    return place.scope


_warned: tuple[Place, int] | None = None


def warn_in_child(place: Place, function: str) -> None:
    """Log one warning in a forked child, whose siblings draw the same until it reseeds."""
    global _warned
    if place.forks == forks.count or _warned == (place, here := os.getpid()):
        return
    _warned = place, here
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
    place: Place = current(function).place
    # Dynamo does not trace the check: code that is compiled runs in the main process.
    if "torch" not in sys.modules or not sys.modules["torch"].compiler.is_compiling():
        register = "or register it before the workers start (fastseed.register_generator)"
        refuse_worker(function, f"call {instead}, {register}")
    return place.master_seed, place.fields.of(name)
