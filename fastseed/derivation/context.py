"""The process-wide context: the Seeder that ``fastseed.init`` made.

Everything that uses the seeder of the process gets it here, also from folders below ``seeder``.

Threads: all share the one seeder. ``init`` replaces it in one assignment, so that another thread
has the old one or the new one; call it before threads are started. A forked child has its parent's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .._utils import validation

seeder: Any = None
"""The process-wide Seeder; None before ``fastseed.init``."""


_observers: list[Callable[[], None]] = []


class Origin(NamedTuple):
    """The numbers that the keys of this process's own streams are derived from."""

    master_seed: int
    rank: int


def set_current(new: Any) -> None:
    """Make ``new`` the process-wide seeder."""
    global seeder
    seeder = new
    scope_changed(new)


def observe_scope(observer: Callable[[], None]) -> None:
    """Call ``observer()`` after each time that the process-wide seeder moved to a scope."""
    _observers.append(observer)


def scope_changed(changed: Any) -> None:
    """Call the observers, if ``changed`` is the process-wide seeder."""
    for observer in _observers if changed is seeder else ():
        observer()


def current(function: str) -> Any:
    """Return the process-wide seeder; RuntimeError before ``fastseed.init``."""
    if seeder is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.init(...) first")
    return seeder


def origin(function: str, instead: str) -> Origin:
    """Return what the keys of this process's own streams are derived from.

    Raises:
        RuntimeError: before ``fastseed.init``.
        ValueError: the scheme has no keys; ``instead`` serves there.
    """
    found = current(function)
    if found.scheme != "philox-v1":
        rule = f"'philox-v1' (use {instead})"
        raise validation.value_error(function, "scheme", rule, found.scheme)
    return Origin(found.stream_master, found.rank_fields.default)
