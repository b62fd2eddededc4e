"""Notice two objects of this process that have the same random numbers, and warn in the log."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from .._utils.log import logger
from . import context

User = TypeVar("User")


class StreamUsers(Generic[User]):
    """The live objects of one kind, with the streams that each used last.

    Nothing walks over them: a call takes the same time for any number of objects, and a thread may
    call while another one does.

    Args:
        message: the warning, for ``%`` with the first parts of ``use``.
        data_of: returns the data of an object; two with the same may use the same streams.
    """

    def __init__(
        self,
        message: str,
        data_of: Callable[[User], object] = lambda user: getattr(user, "dataset", user),
    ) -> None:
        self._message, self._data_of = message, data_of
        self._uses: weakref.WeakKeyDictionary[User, Hashable] = weakref.WeakKeyDictionary()
        self._users: weakref.WeakValueDictionary[Hashable, User] = weakref.WeakValueDictionary()
        self.has_warned = False

    def warn_if_shared(self, user: User, *use: Hashable) -> None:
        """Warn once per process if another live object used the same streams of the job last."""
        mine, before = (job(), use), self._uses.get(user)
        if self._users.get(before) is user:
            self._users.pop(before, None)
        other = self._users.get(mine, user)
        self._uses[user], self._users[mine] = mine, user
        is_same = self._data_of(other) is self._data_of(user)
        if not (is_same or self.has_warned):
            self.has_warned = True
            logger.warning(self._message, *use[: self._message.count("%")])


def job() -> Hashable:
    """Return what identifies the job of the last ``init``."""
    return None if context.seeder is None else weakref.ref(context.seeder)
