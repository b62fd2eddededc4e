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
        message: the warning of ``enter``, for ``%`` with the first parts of ``use``.
    """

    def __init__(self, message: str = "") -> None:
        self._message = message
        self._uses: weakref.WeakKeyDictionary[User, Hashable] = weakref.WeakKeyDictionary()
        self._first: weakref.WeakValueDictionary[Hashable, User] = weakref.WeakValueDictionary()
        self.has_warned = False

    def find_other(self, user: User, *use: Hashable) -> User | None:
        """Note that ``user`` now uses these streams of the job; return the object that did before.

        The result is None where no such object exists, and where it uses other streams by now.
        """
        job = None if context.seeder is None else weakref.ref(context.seeder)
        now = (job, use)  # the seeder of an earlier init is another job
        before = self._uses.get(user)
        if before != now:
            if before is not None and self._first.get(before) is user:
                del self._first[before]
            self._uses[user] = now
        first = self._first.setdefault(now, user)
        return None if first is user else first

    def enter(self, user: User, *use: Hashable) -> None:
        """Note that ``user`` uses these streams; warn, once in a process, if another one does.

        Two objects with one ``dataset`` may use the same.
        """
        other = self.find_other(user, *use)
        if other is None or self.has_warned:
            return
        if getattr(other, "dataset", other) is not getattr(user, "dataset", user):
            self.has_warned = True
            logger.warning(self._message, *use[: self._message.count("%")])
