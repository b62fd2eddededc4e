"""``os.fork``: under ``init(on_os_fork="reseed")`` children take the streams of another job.

A child follows the seeder of the last ``init``, and each ``Seeder`` that was made by hand and is
still in use.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import TYPE_CHECKING

from .._utils.log import logger
from ..derivation.forks import Fork
from ..derivation.scopes import Scope

if TYPE_CHECKING:
    from .seeder import Seeder


class _Pending(threading.local):
    """The fork that this thread is about to make, for each seeder that follows it."""

    forks: tuple[tuple[Seeder, Fork], ...] = ()


_seeders: list[weakref.ref[Seeder]] = []
_pending = _Pending()


def _count_child() -> None:
    seeders = [seeder for ref in tuple(_seeders) if (seeder := ref()) is not None]
    _pending.forks = tuple(
        (seeder, seeder._ancestry.count_child(seeder.scope or Scope(0, 0, 0))) for seeder in seeders
    )


def _forget_child() -> None:
    _pending.forks = ()


def _become_child() -> None:
    for seeder, fork in _pending.forks:
        try:
            seeder._follow_fork(fork)
        except Exception as error:
            logger.error("fastseed: in a forked child: %s", error, exc_info=True)
    _forget_child()


@functools.cache
def _install() -> None:
    os.register_at_fork(
        before=_count_child, after_in_parent=_forget_child, after_in_child=_become_child
    )


def forget(seeder: Seeder) -> None:
    """Let forks ignore this seeder, which is no longer in use."""
    _seeders[:] = [ref for ref in _seeders if ref() not in (None, seeder)]


def watch(seeder: Seeder) -> None:
    """Let children follow this seeder if it says so, until it is forgotten or deleted."""
    if seeder.on_os_fork == "reseed":
        forget(seeder)
        _seeders.append(weakref.ref(seeder))
        _install()
