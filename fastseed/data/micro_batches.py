"""The micro-batches of a rank in a step of slots."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any


class MicroBatches(Iterator[Any]):
    """This rank's micro-batches of a step, which are fetched one by one.

    After an error it has no more, since what the loader has next is the batch of another slot.
    """

    def __init__(self, batches: Iterable[Any], slots: range) -> None:
        self.slots, self.left = slots, len(slots)  # SlotGradients compares the slots with its own
        self._batches = itertools.islice(batches, len(slots))

    def __next__(self) -> Any:
        batch = next(self._batches)
        self.left -= 1
        return batch
