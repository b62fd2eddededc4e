"""The process-wide context: the Seeder that ``fastseed.init`` made.

Everything that uses the seeder of the process gets it here, also from folders below ``seeder``.

Threads: all share the one seeder. ``init`` replaces it in one assignment, so that another thread
has the old one or the new one; call it before threads are started. A forked child has its parent's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from .coordinates import Coordinates, require_keys


class RankFieldsOfJob(Protocol):
    """The rank field of each stream: :class:`fastseed.distributed.mesh.RankFields`."""

    default: int

    def rules(self) -> str:
        """Return what ``distinct_over`` means."""


class MeshOfJob(Protocol):
    """The position of this rank: :class:`fastseed.distributed.mesh.Mesh`."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def ranks(self) -> tuple[int, ...]: ...
    @property
    def sizes(self) -> tuple[int, ...]: ...


class Registered(Protocol):
    """A registered generator: :class:`fastseed.seeder.registry.Registration`."""

    @property
    def name(self) -> str: ...
    @property
    def shared(self) -> bool: ...


class ProcessSeeder(Protocol):
    """The process-wide :class:`fastseed.Seeder`, as far as folders below ``seeder`` read it.

    Those above it call ``fastseed.seeder.seeder.current_seeder``, which returns the Seeder itself.
    """

    rank: int
    world_size: int
    scheme: str
    scope: Coordinates | None
    on_os_fork: str | None
    master_seed: int
    data_rank: int
    data_world_size: int

    @property
    def stream_master(self) -> int: ...
    @property
    def mesh(self) -> MeshOfJob | None: ...
    @property
    def rank_fields(self) -> RankFieldsOfJob: ...
    @property
    def registry(self) -> Iterable[Registered]: ...


seeder: ProcessSeeder | None = None
"""The process-wide Seeder; None before ``fastseed.init``."""


_observers: list[Callable[[], None]] = []


class Origin(NamedTuple):
    """The numbers that the keys of this process's own streams are derived from."""

    master_seed: int
    rank: int


def set_current(new: ProcessSeeder) -> None:
    """Make ``new`` the process-wide seeder."""
    global seeder
    seeder = new
    scope_changed(new)


def observe_scope(observer: Callable[[], None]) -> None:
    """Call ``observer()`` after each time that the process-wide seeder moved to a scope."""
    _observers.append(observer)


def scope_changed(changed: ProcessSeeder) -> None:
    """Call the observers, if ``changed`` is the process-wide seeder."""
    for observer in _observers if changed is seeder else ():
        observer()


def current(function: str) -> ProcessSeeder:
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
    if workers is not None and workers.get_worker_info() is not None:
        raise RuntimeError(
            f"fastseed.{function}: must not be called in a DataLoader worker, where all workers "
            f"would draw the same; call {instead}, or register it before the workers start "
            "(fastseed.register_generator)"
        )
    require_keys(function, found.scheme, f"use {instead}")
    return Origin(found.stream_master, found.rank_fields.default)
