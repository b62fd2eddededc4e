"""Notice two objects of this process that have the same random numbers, and say so in the log."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Hashable
from typing import Generic, TypeVar

from . import context

logger = logging.getLogger("fastseed")
User = TypeVar("User")


class StreamUsers(Generic[User]):
    """The objects of one kind, held weakly, with the streams that each used last.

    Threads may enter at once: at worst a warning is missing or comes twice. A forked child inherits
    the objects, and warns no more if its parent has warned.

    Args:
        message: the warning, for ``%`` with the first parts of ``use``.
    """

    def __init__(self, message: str) -> None:
        self._message = message
        self._uses: weakref.WeakKeyDictionary[User, Hashable] = weakref.WeakKeyDictionary()
        self._first: weakref.WeakValueDictionary[Hashable, User] = weakref.WeakValueDictionary()
        self.has_warned = False

    def enter(self, user: User, *use: Hashable) -> None:
        """Note that ``user`` uses these streams of the job; warn, once in a process, of another.

        That is one that used them before, still exists, and uses no others by now. Two objects with
        one ``dataset`` may use the same.
        """
        # The seeder of an earlier init is another job.
        job = None if context.seeder is None else weakref.ref(context.seeder)
        now, before = (job, use), self._uses.get(user)
        if before != now:
            if before is not None and self._first.get(before) is user:
                self._first.pop(before, None)
            self._uses[user] = now
        first = self._first.setdefault(now, user)
        if self.has_warned or getattr(first, "dataset", first) is getattr(user, "dataset", user):
            return
        self.has_warned = True
        logger.warning(self._message, *use[: self._message.count("%")])
