"""The scope of a loader's iteration: the main process writes it, worker processes read it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from ..._utils import validation
from ...derivation.coordinates import Coordinates
from ...seeder.seeder import Seeder, current_seeder


class IterationScope(NamedTuple):
    """The task and epoch of an iteration, and the global position of its first sample."""

    task: int
    epoch: int
    start: int
    number: int  # of the iteration among those of its loader; 0: there was none yet


class SharedScope:
    """An ``IterationScope`` in shared memory.

    The main process writes it when an iteration begins. Workers read the same memory for as long
    as they live, whatever their start method. A plain pickle or a deep copy has memory of its own.
    """

    __slots__ = ("_tensor", "_words")

    def __init__(self, tensor: Any = None) -> None:
        if tensor is None:
            tensor = torch.zeros(4, dtype=torch.int64, device="cpu")
        if not tensor.is_shared():
            tensor.share_memory_()
        self._tensor = tensor
        self._words: Any = memoryview(tensor.numpy())  # its items are ints, at 30 ns each

    def write(self, scope: IterationScope) -> None:
        """Begin another iteration; in the main process only."""
        # The number is written last and read first: a reader that comes in between gets the number
        # of the iteration before, and reads again for its next sample.
        words = self._words
        words[1], words[2], words[3] = scope.task, scope.epoch, scope.start
        words[0] = scope.number

    def read(self) -> IterationScope:
        """Return what was written last; number 0 before the first write."""
        number, task, epoch, start = self._words
        return IterationScope(task, epoch, start, number)

    @property
    def number(self) -> int:
        """The number of the iteration."""
        return int(self._words[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedScope, (self._tensor,)


thread_scope: ContextVar[IterationScope | None] = ContextVar("thread_scope", default=None)
"""The scope in which a thread of the main process is fetching a sample.

Each thread has its own; one that a dataset starts has none. In a worker ``worker_seeding`` has it.
"""


def epoch_scope(seeder: Seeder) -> Coordinates | None:
    """Return the scope of the job; None in that of ``init``, in which all epochs were the same."""
    scope = seeder.scope
    return None if scope == (0, 0, 0) and not seeder.recent_scopes.used else scope


def keyed_seeder(function: str) -> Seeder:
    """Return the process-wide seeder; ValueError under scheme 'fwr13y', which has no keys."""
    seeder = current_seeder(function)
    if seeder.scheme != "philox-v1":
        raise validation.value_error(function, "scheme", "'philox-v1'", seeder.scheme)
    return seeder
