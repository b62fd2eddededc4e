"""The streams of forked children under ``init(on_os_fork="reseed")``: those of another job.

    master of child k at rank field p = low 64 bits of the key of stream "process.fork", index k,
                                        rank field p, in the scope of the fork

The key is derived from the master seed that the parent uses at p; k = 1, 2, ... in each scope.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

from . import streams
from .scopes import Scope

STREAM = "process.fork"
_MANY = 1 << 12  # scopes in which children are counted


class Fork(NamedTuple):
    """One fork: the scope of the parent, and which of the children forked in it this is, from 1."""

    at: Scope
    child: int


class Ancestry:
    """The forks between the process that called ``init`` and this one, the first fork first."""

    def __init__(self, forks: tuple[Fork, ...] = ()) -> None:
        self.forks = forks
        self._children: dict[Scope, itertools.count[int]] = {}

    def master(self, master_seed: int, rank_field: int) -> int:
        """Return the master seed for a rank field; without forks it is the job's."""
        return master_of_child(master_seed, rank_field, self.forks) if self.forks else master_seed

    def count_child(self, at: Scope) -> Fork:
        """Return the fork of one more child; threads that fork at once get different numbers."""
        if len(self._children) >= _MANY and at not in self._children:
            self._children.pop(next(iter(self._children)), None)
        return Fork(at, next(self._children.setdefault(at, itertools.count(1))))


@functools.lru_cache(maxsize=_MANY)
def master_of_child(master_seed: int, rank_field: int, forks: tuple[Fork, ...]) -> int:
    """Return the master seed that a child of these forks uses for a rank field."""
    for at, child in forks:
        stream = streams.stream(master_seed, Scope(*at), STREAM, rank_field)
        master_seed = stream.seed(64, child)
    return master_seed
