"""The random streams of forked children.

A child starts with a copy of its parent's generators. Under ``init(on_os_fork="reseed")`` each
child gets streams of its own: those of a job with another master seed,

    master of child k at rank field p = low 64 bits of the key of stream "process.fork", index k,
                                        rank field p, in the scope of the fork

derived from the master seed that the parent uses at p, with k = 1, 2, ... in each scope, and
task 0, epoch 0, step 0 before the first ``reseed``.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

from .._utils import validation
from . import streams
from .scopes import Scope

STREAM = "process.fork"
"""The stream of children's master seeds; no generator can be registered under its name."""

MODES = ("inherit", "reseed")

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

    def __reduce__(self) -> tuple[object, ...]:
        return Ancestry, (self.forks,)  # the children of this process are not the other one's

    def master(self, master_seed: int, rank_field: int) -> int:
        """Return the master seed for a rank field; without forks it is the job's."""
        return master_of_child(master_seed, rank_field, self.forks) if self.forks else master_seed

    def count_child(self, at: Scope) -> Fork:
        """Return the fork of one more child; two threads that fork get different numbers."""
        if len(self._children) >= _MANY and at not in self._children:
            self._children.pop(next(iter(self._children)), None)
        return Fork(at, next(self._children.setdefault(at, itertools.count(1))))

    def child(self, fork: Fork) -> Ancestry:
        """Return the ancestry of that child."""
        return Ancestry((*self.forks, fork))


@functools.lru_cache(maxsize=_MANY)
def master_of_child(master_seed: int, rank_field: int, forks: tuple[Fork, ...]) -> int:
    """Return the master seed of a child's streams of a rank field, the first fork first."""
    for at, child in forks:
        stream = streams.stream(master_seed, Scope(*at), STREAM, rank_field)
        master_seed = stream.seed(64, child)
    return master_seed


def check_mode(function: str, mode: object) -> str | None:
    """Return the argument ``on_os_fork`` of ``init``."""
    return None if mode is None else validation.check_choice(function, "on_os_fork", mode, MODES)
