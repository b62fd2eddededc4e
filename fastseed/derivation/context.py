"""The process-wide context: the Seeder that ``fastseed.init`` made.

Everything that uses the seeder of the process gets it here, also from folders below ``seeder``.

Threads: all share the one seeder. ``init`` replaces it in one assignment, so that another thread
has the old one or the new one; call it before threads are started. A forked child has its parent's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from .scopes import require_keys

if TYPE_CHECKING:
    from ..seeder.seeder import Seeder

seeder: Seeder | None = None
"""The process-wide Seeder; None before ``fastseed.init``."""


stale_modes: list[Callable[[], None]] = []
"""Functions that leave a mode of torch which an interrupt left on: ``reseed`` calls them first.

Append one when its mode is first entered; it may be called at any time, also inside the mode.
"""

_observers: list[Callable[[], None]] = []


class Origin(NamedTuple):
    """The numbers that the keys of this process's own streams are derived from."""

    master_seed: int
    rank_field: int


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


def origin(function: str, instead: str) -> Origin:
    """Return what the keys of this process's own streams are derived from.

    Raises:
        RuntimeError: before ``fastseed.init``, and in a DataLoader worker: all workers have these
            numbers, so that they would draw the same.
        ValueError: the scheme has no keys; ``instead`` serves there.
    """
    found = current(function)
    workers = sys.modules.get("torch.utils.data")
    # Dynamo does not trace `get_worker_info`: code that is compiled runs in the main process.
    if workers is None or sys.modules["torch"].compiler.is_compiling():
        workers = None
    if workers is not None and workers.get_worker_info() is not None:
        raise RuntimeError(
            f"fastseed.{function}: must not be called in a DataLoader worker, where all workers "
            f"would draw the same; call {instead}, or register it before the workers start "
            "(fastseed.register_generator)"
        )
    require_keys(function, found.scheme, f"use {instead}")
    return Origin(found._stream_master, found._rank_fields.default)
