"""``os.fork``: children take their streams, and find the locks of generators free.

What a child's streams are is in :mod:`fastseed.derivation.lineage`.

Locks: a thread that draws while another one forks would leave the generator's lock held in the
child for ever. The forking thread takes the locks of all generators first: NumPy's in the order of
their ids, then torch's mutexes in the order of their addresses. NumPy's are not re-entrant before
2.4: there the child releases those that are taken.

A child follows the seeder of the last ``init``, and each ``Seeder`` that was made by hand and is
still in use. One that a second ``init`` replaced is forgotten at once.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import weakref
from typing import Any, Protocol

import numpy as np
import torch

from .._backend import native
from ..derivation.coordinates import Coordinates
from ..derivation.lineage import Fork, ForkLineage
from ..generators.pool import GeneratorPool
from .registry import Registry

logger = logging.getLogger("fastseed")

_PLAIN_LOCK = type(threading.Lock())
"""NumPy's before 2.4. The thread that forks may hold it, and other handlers may draw, so it cannot
be taken: the child, which has no other thread, releases it."""


class Lock(Protocol):
    """A lock of NumPy, of either kind."""

    def acquire(self) -> bool: ...
    def release(self) -> None: ...
    def locked(self) -> bool: ...


class Forkable(Protocol):
    """A seeder that children of this process follow."""

    on_os_fork: str | None
    scope: Coordinates | None
    lineage: ForkLineage
    registry: Registry

    def follow_fork(self, fork: Fork) -> None:
        """Take the streams of a child, in that child."""


class _ForkHandlers(threading.local):
    """The handlers around ``os.fork``; each thread holds the locks of its own forks."""

    def __init__(self) -> None:
        # Locks and children of each fork that this thread is in: other handlers may fork too.
        self.pending: list[tuple[list[Lock], list[tuple[Forkable, Fork]]]] = []

    def before(self) -> None:
        """Count the child and take the locks."""
        locks: list[Lock] = []
        children: list[tuple[Forkable, Fork]] = []
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


_seeders: list[weakref.ref[Forkable]] = []
_handlers = _ForkHandlers()


@functools.cache
def _install() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lambda: _handlers.before(),
            after_in_parent=lambda: _handlers.after(in_child=False),
            after_in_child=lambda: _handlers.after(in_child=True),
        )


def forget(seeder: Forkable) -> None:
    """Let forks ignore this seeder, which is no longer in use."""
    _seeders[:] = [ref for ref in _seeders if ref() is not seeder]


def watch(seeder: Forkable) -> None:
    """Let forks respect this seeder's generators, until it is forgotten or deleted."""
    _seeders[:] = [ref for ref in _seeders if ref() is not None]
    _seeders.append(weakref.ref(seeder))
    _install()
