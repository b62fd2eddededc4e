"""The process-wide context: the Seeder that ``fastseed.init`` made, which all threads share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from .._backend.reference.scalar import ScopeKey
from .scopes import require_keys

if TYPE_CHECKING:
    from ..seeder.seeder import Seeder

seeder: Seeder | None = None
"""The process-wide Seeder; None before ``fastseed.init``. A forked child has its parent's."""

stale_modes: list[Callable[[], None]] = []
"""Functions that leave a mode of torch which an interrupt left on: ``reseed`` calls them first.

Append one when its mode is first entered; it may be called at any time, also inside the mode.
"""


class WorkerPlace(NamedTuple):
    """Where a DataLoader worker is whose generators fastseed has seeded."""

    scope: ScopeKey
    rank_field: int
    number: int  # the worker word of its streams


worker_place: WorkerPlace | None = None
"""None in other processes."""

_observers: list[Callable[[], None]] = []


def set_current(new: Seeder) -> None:
    """Make ``new`` the process-wide seeder."""
    global seeder
    seeder = new
    scope_changed(new)


def observe_scope(observer: Callable[[], None]) -> None:
    """Call ``observer()`` after each time that the process-wide seeder moved to a scope."""
    _observers.append(observer)


def scope_changed(changed: Seeder) -> None:
    """Call the observers, if ``changed`` is the process-wide seeder."""
    for observer in _observers if changed is seeder else ():
        observer()


def current(function: str) -> Seeder:
    """Return the process-wide seeder; RuntimeError before ``fastseed.init``."""
    if seeder is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.init(...) first")
    return seeder


_WORKERS = "workers have streams already (fastseed.data.worker_init_fn, fastseed.data.Loader)"


def refuse_worker(function: str, instead: str = _WORKERS) -> None:
    """Raise RuntimeError in a DataLoader worker."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        raise RuntimeError(
            f"fastseed.{function}: must not be called in a DataLoader worker, where all workers "
            f"would draw the same; {instead}"
        )


def origin(function: str, instead: str) -> tuple[int, int]:
    """Return master seed and rank field of this process's own streams.

    RuntimeError before ``fastseed.init`` and in a DataLoader worker; ValueError if the scheme has
    no keys. ``instead`` is the function that serves there.
    """
    found = current(function)
    # Dynamo does not trace the check: code that is compiled runs in the main process.
    if "torch" not in sys.modules or not sys.modules["torch"].compiler.is_compiling():
        register = "or register it before the workers start (fastseed.register_generator)"
        refuse_worker(function, f"call {instead}, {register}")
    require_keys(function, found.scheme, f"use {instead}")
    field = found._rank_fields.default
    return found._master_of(field), field
