"""Notice two objects of this process that have the same random numbers, and warn in the log."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Generic, TypeVar

from .._utils.log import logger
from . import context

User = TypeVar("User")


class StreamUsers(Generic[User]):
    """The live objects of one kind, with the streams that each used last.

    Args:
        message: the warning, for ``%`` with the first parts of ``use``.
    """

    def __init__(self, message: str) -> None:
        self._message = message
        self._uses: weakref.WeakKeyDictionary[User, Hashable] = weakref.WeakKeyDictionary()
        self.has_warned = False

    def warn_if_shared(self, user: User, *use: Hashable) -> None:
        """Warn once per process if another live object used the same streams of the job last.

        Two objects with one dataset may use the same streams.
        """
        self._uses[user] = mine = (job(), use)
        if self.has_warned:
            return
        data = _data_of(user)
        for other, held in list(self._uses.items()):
            if held == mine and _data_of(other) is not data:
                self.has_warned = True
                logger.warning(self._message, *use[: self._message.count("%")])
                return


def _data_of(user: object) -> object:
    """Return the dataset of a wrapper or of a loader, else the object itself."""
    return getattr(user, "_wrapped" if hasattr(user, "_wrapped") else "dataset", user)


def job() -> Hashable:
    """Return what identifies the job of the last ``init``."""
    return None if context.seeder is None else weakref.ref(context.seeder)
