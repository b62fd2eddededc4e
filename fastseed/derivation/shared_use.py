"""Notice two objects of this process that have the same random numbers, and warn in the log."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Hashable
from typing import Generic, TypeVar

from . import context

logger = logging.getLogger("fastseed")
User = TypeVar("User")


class StreamUsers(Generic[User]):
    """The objects of one kind, held weakly, with the streams that each uses.

    Threads may call at once: at worst a warning is missing or comes twice. A forked child inherits
    the objects, and warns no more if its parent has warned.

    Args:
        message: the warning, for ``%`` with the first parts of ``use``.
    """

    def __init__(self, message: str = "") -> None:
        self._message = message
        self._last: weakref.WeakKeyDictionary[User, Hashable] = weakref.WeakKeyDictionary()
        self._first: weakref.WeakValueDictionary[Hashable, User] = weakref.WeakValueDictionary()
        self.has_warned = False

    def first_user(self, user: User, *use: Hashable) -> User:
        """Return the live object that used these streams of the job first; else ``user``."""
        return self._first.setdefault(_in_job(use), user)

    def warn_if_shared(self, user: User, *use: Hashable) -> None:
        """Warn once per process if another live object uses the same streams.

        The streams of the object's last call become free. Two objects with one ``dataset`` may use
        the same streams.
        """
        before = self._last.get(user)
        if before != _in_job(use):
            if before is not None and self._first.get(before) is user:
                self._first.pop(before, None)
            self._last[user] = _in_job(use)
        first = self.first_user(user, *use)
        if self.has_warned or getattr(first, "dataset", first) is getattr(user, "dataset", user):
            return
        self.has_warned = True
        logger.warning(self._message, *use[: self._message.count("%")])


def _in_job(use: tuple[Hashable, ...]) -> Hashable:
    """Return a use as one of this job: the seeder of an earlier ``init`` is another job."""
    return None if context.seeder is None else weakref.ref(context.seeder), use
