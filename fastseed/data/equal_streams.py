"""Warn where two datasets or two loaders have equal random numbers in one scope."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Hashable
from typing import Any

from ..derivation import context

logger = logging.getLogger("fastseed")


class StreamUsers:
    """The objects of this process that use streams whose names are the same for all of them.

    Objects are held weakly, with the streams that each used last. Threads may enter at once: at
    worst a warning is missing or comes twice. A forked child inherits the objects, and warns no
    more if its parent has warned.

    Args:
        message: the warning, for ``%`` with task and epoch.
    """

    def __init__(self, message: str) -> None:
        self._message = message
        self._uses: weakref.WeakKeyDictionary[Any, Hashable] = weakref.WeakKeyDictionary()
        self.has_warned = False

    def enter(self, user: Any, task: int, epoch: int, *streams: Hashable) -> None:
        """Note that ``user``, which has a ``dataset``, uses these streams in a scope of the job.

        Log a warning, once in a process, if another one uses them that has another dataset.
        """
        job = None if context.seeder is None else weakref.ref(context.seeder)
        use = (job, task, epoch, streams)  # the seeder of an earlier init is another job
        self._uses[user] = use
        if self.has_warned:
            return
        for other, known in tuple(self._uses.items()):
            if known == use and other.dataset is not user.dataset:
                self.has_warned = True
                logger.warning(self._message, task, epoch)
                return
