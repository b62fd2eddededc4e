"""``os.fork``: under ``init(on_os_fork="reseed")`` children take streams of their own.

:mod:`fastseed.derivation.forks` has the rule of a child's streams. A child follows the seeder of
the last ``init``, and each ``Seeder`` that was made by hand and is still in use.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING

from ..derivation.forks import Fork
from ..derivation.scopes import Scope

if TYPE_CHECKING:
    from .seeder import Seeder

logger = logging.getLogger("fastseed")


class _ForkHandlers(threading.local):
    """The handlers around ``os.fork``, with the forks that this thread is in."""

    def __init__(self) -> None:
        # A list for each fork: other handlers of a fork may fork, too.
        self.pending: list[list[tuple[Seeder, Fork]]] = []

    def before(self) -> None:
        """Count the child."""
        children: list[tuple[Seeder, Fork]] = []
        self.pending.append(children)
        for seeder in filter(None, [ref() for ref in tuple(_seeders)]):
            at = seeder.scope or Scope(0, 0, 0)
            children.append((seeder, seeder._ancestry.count_child(at)))

    def after(self, in_child: bool) -> None:
        """Give the child its streams."""
        children = self.pending.pop() if self.pending else []
        for seeder, fork in children if in_child else ():
            try:
                seeder._follow_fork(fork)
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
    """Let children follow this seeder if it says so, until it is forgotten or deleted."""
    if seeder.on_os_fork == "reseed":
        _seeders[:] = [ref for ref in _seeders if ref() is not None]
        _seeders.append(weakref.ref(seeder))
        _install()
