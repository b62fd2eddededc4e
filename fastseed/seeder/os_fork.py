"""What ``os.fork`` does to generators, and to the locks in front of them.

*Streams.* A child of ``fork`` starts with a copy of its parent's generators, and so draws what the
parent, or a sibling, draws. Under ``init(on_os_fork="reseed")`` each child goes on streams of its own:
those of a job with another master seed, which follows from where the process stood at the fork and
from the child's number among the children forked there,

    master of child k at place p = lo of the key of stream "process.fork", index k, rank field p,
                                   in the scope of the fork, under the master seed in use at p

with p the rank field of the stream in question (the rank, or ``SHARED``), k = 1, 2, … in each
scope, and task 0, epoch 0, step 0 for the scope before the first ``reseed``. A child's child
follows by the same rule from the child's master seed.

*Locks.* A thread that is drawing while another one forks leaves the generator's lock held in the
child, for ever. From the first :class:`~fastseed.seeder.Seeder` on, the forking thread holds the
locks of the global generators, and of the registered ones, across the fork.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from .._backend import native
from .._utils import validation
from ..derivation import streams
from ..derivation.streams import Coordinates
from ..generators.accelerator import AcceleratorGenerators
from ..generators.adapter import LOW64
from ..generators.pool import GeneratorPool

if TYPE_CHECKING:
    from .seeder import Seeder

logger = logging.getLogger("fastseed")

STREAM = "process.fork"
"""The stream whose seeds are the master seeds of forked children: nobody else may use the name."""

MODES = ("inherit", "reseed")

SETTLE = 60.0
"""Seconds for which a fork waits for threads that are drawing, while all other threads run."""

PATIENCE = 10.0
"""Seconds more, in which no Python thread runs; a lock that is still taken is made anew in the
child. Only a thread that forks while it holds the lock itself comes this far."""

_MANY = 1 << 12  # scopes whose children are counted; beyond that the oldest are forgotten


class Fork(NamedTuple):
    """One fork: where the parent stood, and which of its children there this is (1, 2, …)."""

    at: Coordinates
    number: int


class Lineage:
    """The forks between the process that called ``init`` and this one, the first fork first."""

    def __init__(self, forks: tuple[Fork, ...] = ()) -> None:
        self.forks = forks
        self._masters: dict[tuple[int, int], int] = {}
        self._children: OrderedDict[Coordinates, itertools.count[int]] = OrderedDict()

    def master(self, master_seed: int, place: int) -> int:
        """The master seed in use for streams of rank field ``place``; the job's without forks."""
        if not self.forks:
            return master_seed
        found = self._masters.get((master_seed, place))
        if found is None:
            found = master_of_child(master_seed, place, self.forks)
            if len(self._masters) >= _MANY:
                self._masters.clear()
            self._masters[master_seed, place] = found
        return found

    def next(self, at: Coordinates) -> Fork:
        """Count one more child of this process at ``at``.

        Without a lock, which a signal handler that forks would wait for: each step is whole.
        """
        number = next(self._children.setdefault(at, itertools.count(1)))
        with contextlib.suppress(KeyError):  # another thread came first
            self._children.move_to_end(at)
            if len(self._children) > _MANY:
                self._children.popitem(last=False)
        return Fork(at, number)

    def child(self, fork: Fork) -> Lineage:
        """The line of that child, which has no children yet."""
        return Lineage((*self.forks, fork))


def master_of_child(master_seed: int, place: int, forks: tuple[Fork, ...]) -> int:
    """The master seed that rules the streams of a forked child, in [0, 2**64).

    Args:
        master_seed: the job's.
        place: the rank field of the streams: the parent's rank, or ``fastseed.SHARED``.
        forks: (the scope of the fork, the child's number in it) for each fork, the first one first.
    """
    for at, number in forks:
        stream = streams.stream(master_seed, Coordinates(*at), STREAM, place)
        master_seed = stream.key(number) & LOW64
    return master_seed


def _free_initialization(accelerator: AcceleratorGenerators) -> None:
    """A thread that was initialising the accelerator in the parent holds torch's lock for that."""
    lock = getattr(accelerator._module, "_initialization_lock", None)
    if lock is not None and lock.locked():
        lock._at_fork_reinit()


def check_mode(mode: Any, scheme: str) -> str | None:
    """The argument ``fork`` of ``init``."""
    if mode is not None and not isinstance(mode, str):
        raise TypeError(
            f"fastseed.init: fork must be None or one of {MODES}, "
            f"got {validation.describe(mode)} of type {type(mode).__name__}"
        )
    if mode is not None and mode not in MODES:
        raise ValueError(
            f"fastseed.init: fork must be None or one of {MODES}, got {validation.describe(mode)}"
        )
    if mode == "reseed" and scheme != "philox-v1":
        raise ValueError(
            f"fastseed.init: fork must be None or 'inherit' under scheme {scheme!r}, got 'reseed'"
        )
    return mode


# ---------------------------------------------------------------- around a fork

_seeders: list[weakref.ref[Seeder]] = []  # in the order in which they were made
_installed = False


class _Work:
    """What the forking thread has to do after one fork; the child's only thread is a copy of it."""

    def __init__(self) -> None:
        self.forks: list[tuple[Seeder, Fork]] = []
        self.held: list[Any] = []
        self.missed: list[Any] = []
        self.armed = False  # whether native code holds torch's locks


class _Pending(threading.local):
    """Of each fork that this thread is in: handlers of others, and of signals, may fork too."""

    def __init__(self) -> None:
        self.works: list[_Work] = []


_pending = _Pending()


def watch(seeder: Seeder) -> None:
    """From now on forks respect this seeder's generators."""
    global _installed
    _seeders[:] = [ref for ref in _seeders if ref() is not None]
    _seeders.append(weakref.ref(seeder))
    if not _installed and hasattr(os, "register_at_fork"):
        _installed = True
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


def _watched() -> Iterator[Seeder]:
    for ref in tuple(_seeders):
        seeder = ref()
        if seeder is not None:
            yield seeder


def _before() -> None:
    work = _Work()
    _pending.works.append(work)
    with _reported("before a fork"):
        for seeder in _watched():
            if seeder.on_os_fork == "reseed":
                at = seeder.scope or Coordinates(0, 0, 0)
                work.forks.append((seeder, seeder.lineage.next(at)))
    with _reported("before a fork"):
        _take_locks(work)


def _in_parent() -> None:
    work = _done()
    with _reported("after a fork"):
        _give_locks_back(work, child=False)


def _in_child() -> None:
    work = _done()
    with _reported("in a forked child"):
        _give_locks_back(work, child=True)
    for seeder, fork in work.forks:
        with _reported("in a forked child, whose generators are now partly its parent's"):
            for accelerator in seeder.accelerators:
                _free_initialization(accelerator)
            seeder.follow_fork(fork)


def _done() -> _Work:
    """Of the innermost fork; nothing where these handlers were installed during it."""
    return _pending.works.pop() if _pending.works else _Work()


@contextlib.contextmanager
def _reported(when: str) -> Iterator[None]:
    """Python would print what a handler raised, and go on: so do we, through the logger."""
    try:
        yield
    except Exception as error:
        logger.error("fastseed: %s: %s", when, error, exc_info=True)


def _generators() -> tuple[list[torch.Generator], list[Any]]:
    """The registered torch generators, and the locks of NumPy's, the global one's among them."""
    torches: list[torch.Generator] = []
    bits = {id(found): found for found in (np.random.get_bit_generator(),)}  # type: ignore[attr-defined]
    for seeder in _watched():
        for entry in seeder.registry.generators:
            generator = getattr(entry.adapter, "target", entry.generator)
            if isinstance(generator, torch.Generator):
                torches.append(generator)
            elif isinstance(generator, GeneratorPool):
                torches.extend(generator._generators)
            elif isinstance(generator, (np.random.Generator, np.random.RandomState)):
                found: Any = getattr(generator, "bit_generator", None)
                found = generator._bit_generator if found is None else found  # type: ignore[union-attr]
                bits[id(found)] = found
    locks = {id(lock): lock for lock in (getattr(b, "lock", None) for b in bits.values())}
    locks.pop(id(None), None)
    return torches, [locks[key] for key in sorted(locks)]  # one order for all threads that fork


def _take_locks(work: _Work) -> None:
    """NumPy's first, as ``reseed`` takes them. torch's are taken inside of the fork itself."""
    torches, locks = _generators()
    until = time.monotonic() + SETTLE
    for lock in locks:
        # It is reentrant: what this thread, or another handler, draws meanwhile is let through.
        taken = lock.acquire(timeout=max(0.0, until - time.monotonic()))
        (work.held if taken else work.missed).append(lock)
    if native.generators is not None:
        native.generators.before_fork(torches, SETTLE, PATIENCE)
        work.armed = True
        return
    for generator in (*torches, torch.default_generator):
        generator.get_state()  # waits, with the GIL, until no thread draws from it


def _give_locks_back(work: _Work, child: bool) -> None:
    missed = len(work.missed)
    if child:
        for lock in work.missed:
            lock._at_fork_reinit()
    for lock in reversed(work.held):
        lock.release()
    if work.armed:
        missed += native.generators.after_fork()
    if missed and child:
        logger.warning(
            "fastseed: the locks of %d generators were not given back before this process was "
            "forked: they are new ones, in front of states that nothing reproduces",
            missed,
        )
