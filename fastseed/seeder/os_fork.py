"""``os.fork``: random streams of forked children, and the locks of generators.

A child starts with a copy of its parent's generators. Under ``init(on_os_fork="reseed")`` each
child gets streams of its own: those of a job with another master seed,

    master of child k at rank field p = low 64 bits of the key of stream "process.fork", index k,
                                        rank field p, in the scope of the fork

derived from the master seed that the parent uses at p, with k = 1, 2, ... in each scope, and
task 0, epoch 0, step 0 before the first ``reseed``.

Locks: a thread that draws while another one forks would leave the generator's lock held in the
child for ever. The forking thread takes the locks of all generators first: NumPy's in the order of
their ids, then torch's mutexes in the order of their addresses. NumPy's are not re-entrant before
2.4: there the child releases those that are taken.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from .._backend import native
from .._utils import validation
from ..derivation import streams
from ..derivation.streams import Coordinates
from ..generators.pool import GeneratorPool

if TYPE_CHECKING:
    from .seeder import Seeder

logger = logging.getLogger("fastseed")

STREAM = "process.fork"
"""The stream of children's master seeds; no generator can be registered under its name."""

MODES = ("inherit", "reseed")

_PLAIN_LOCK = type(threading.Lock())
"""NumPy's before 2.4. The thread that forks may hold it, and other handlers may draw, so it cannot
be taken: the child, which has no other thread, releases it."""

_MANY = 1 << 12  # scopes in which children are counted


class Fork(NamedTuple):
    """One fork: the scope of the parent, and the number of the child among those forked in it."""

    at: Coordinates
    number: int


class ForkLineage:
    """The forks between the process that called ``init`` and this one, the first fork first."""

    def __init__(self, forks: tuple[Fork, ...] = ()) -> None:
        self.forks = forks
        self._children: dict[Coordinates, itertools.count[int]] = {}

    def master(self, master_seed: int, rank_field: int) -> int:
        """Return the master seed in use for streams of a rank field: the job's without forks."""
        return master_of_child(master_seed, rank_field, self.forks) if self.forks else master_seed

    def count_child(self, at: Coordinates) -> Fork:
        """Return the fork of one more child; two threads that fork get different numbers."""
        if len(self._children) >= _MANY and at not in self._children:
            self._children.pop(next(iter(self._children)), None)
        return Fork(at, next(self._children.setdefault(at, itertools.count(1))))

    def child(self, fork: Fork) -> ForkLineage:
        """Return the lineage of that child."""
        return ForkLineage((*self.forks, fork))


@functools.lru_cache(maxsize=_MANY)
def master_of_child(master_seed: int, rank_field: int, forks: tuple[Fork, ...]) -> int:
    """Return the master seed of a child's streams of a rank field, the first fork first."""
    for at, number in forks:
        stream = streams.stream(master_seed, Coordinates(*at), STREAM, rank_field)
        master_seed = stream.seed(64, number)
    return master_seed


def check_mode(mode: Any, scheme: str) -> str | None:
    """Return the argument ``on_os_fork`` of ``init``."""
    if mode is None:
        return None
    choices = MODES if scheme == "philox-v1" else ("inherit",)
    return validation.check_choice("init", "on_os_fork", mode, choices)


class _ForkHandlers(threading.local):
    """The handlers around ``os.fork``; each thread holds the locks of its own forks."""

    def __init__(self) -> None:
        # Locks and children of each fork that this thread is in: other handlers may fork too.
        self.pending: list[tuple[list[Any], list[tuple[Seeder, Fork]]]] = []

    def before(self) -> None:
        """Count the child and take the locks."""
        locks: list[Any] = []
        children: list[tuple[Seeder, Fork]] = []
        self.pending.append((locks, children))
        generators: list[torch.Generator] = []
        bits: list[Any] = [np.random.get_bit_generator()]  # type: ignore[attr-defined]
        for seeder in filter(None, [ref() for ref in tuple(_seeders)]):
            if seeder.on_os_fork == "reseed":
                at = seeder.scope or Coordinates(0, 0, 0)
                children.append((seeder, seeder.lineage.count_child(at)))
            for entry in seeder.registry.generators:
                generator = getattr(entry.adapter, "target", entry.generator)
                if isinstance(generator, torch.Generator):
                    generators.append(generator)
                elif isinstance(generator, GeneratorPool):
                    generators += [generator[i] for i in range(len(generator))]
                elif isinstance(generator, (np.random.Generator, np.random.RandomState)):
                    bits.append(generator._bit_generator)  # type: ignore[union-attr]
        for lock in sorted({bit.lock for bit in bits}, key=id):
            if type(lock) is not _PLAIN_LOCK:
                lock.acquire()
            locks.append(lock)
        if native.generators is not None:
            native.generators.hold_across_fork(generators)

    def after(self, in_child: bool) -> None:
        """Release the locks (torch's are released inside the fork), and continue as the child."""
        locks, children = self.pending.pop() if self.pending else ([], [])
        for lock in reversed(locks):
            if type(lock) is not _PLAIN_LOCK or (in_child and lock.locked()):
                lock.release()
        for seeder, fork in children if in_child else ():
            try:
                seeder.follow_fork(fork)
            except Exception as error:
                logger.error("fastseed: in a forked child: %s", error, exc_info=True)


_seeders: list[weakref.ref[Seeder]] = []
_handlers = _ForkHandlers()


@functools.cache
def _install() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lambda: _handlers.before(),
            after_in_parent=lambda: _handlers.after(in_child=False),
            after_in_child=lambda: _handlers.after(in_child=True),
        )


def forget(seeder: Seeder) -> None:
    """Let forks ignore this seeder, which is no longer in use."""
    _seeders[:] = [ref for ref in _seeders if ref() is not seeder]


def watch(seeder: Seeder) -> None:
    """Let forks respect this seeder's generators, until it is forgotten or deleted."""
    _seeders[:] = [ref for ref in _seeders if ref() is not None]
    _seeders.append(weakref.ref(seeder))
    _install()
