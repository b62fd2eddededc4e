"""Where this process is in its job: what a stream depends on, beside its name and its index."""

from __future__ import annotations

import os
from typing import NamedTuple

from .._backend import derive
from .._backend.reference.scalar import ScopeKey
from .entries import Entries
from .rank_fields import RankFields
from .scopes import Scope

_forks = 0  # the calls of os.fork between this process and the one that loaded fastseed


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Place(NamedTuple):
    """A value, which ``reseed`` and a DataLoader worker replace; each ``Seeder`` has one."""

    master_seed: int
    fields: RankFields
    scope: Scope | None  # of the last reseed; None before the first one
    scope_key: ScopeKey
    """That of ``scope``; in a DataLoader worker that of the iteration, under its loader's name."""
    entries: Entries
    """The blocks that were entered here."""
    worker: int = 0
    """The worker word of streams: 0 in the main process, k + 1 in DataLoader worker k."""
    forks: int = 0

    @property
    def is_inherited(self) -> bool:
        """Whether a parent came here, of which this process was forked."""
        return self.forks != _forks


worker: Place | None = None
"""That of a DataLoader worker whose generators fastseed has seeded; None in other processes."""


def place_at(master_seed: int, fields: RankFields, scope: Scope | None) -> Place:
    """Return the place in a scope in which no block was entered."""
    key = (0, 0) if scope is None else derive.scope_key(master_seed, *scope)
    return Place(master_seed, fields, scope, key, Entries(), 0, _forks)
