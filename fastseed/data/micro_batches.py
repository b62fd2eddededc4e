"""The loader of a loop over steps, and the micro-batches of a rank in a step of slots."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from torch.utils.data import DataLoader

from .._utils import validation
from ..derivation import scopes
from .layout import SlotSource
from .loader.loader import Loader, slot_loader


class MicroBatches(Iterator[Any]):
    """This rank's micro-batches of a step, which are fetched one by one.

    After an error it has no more, since what the loader has next is the batch of another slot.
    """

    latest: ClassVar[range | None] = None
    """The slots of the rank, for the batch that was fetched last; SlotGradients compares them."""

    def __init__(self, batches: Iterable[Any], slots: range) -> None:
        self._slots, self.left = slots, len(slots)
        self._batches = itertools.islice(batches, len(slots))

    def __next__(self) -> Any:
        batch = next(self._batches)
        self.left -= 1
        MicroBatches.latest = self._slots
        return batch


def loader_of(function: str, loader: Any, slots: int | SlotSource | None) -> Loader:
    """Return the ``Loader`` of a loop over the steps of a DataLoader."""
    if slots is not None:
        number, assignment = slots, "blocks"
        if isinstance(slots, SlotSource):
            number, assignment = slots.slots, slots.assignment
        number = validation.check_int(function, "slots", number, 1, scopes.MAX_RANK)
        return slot_loader(function, loader, number, assignment)
    if isinstance(loader, Loader):
        return loader
    is_around_one = isinstance(getattr(loader, "loader", None), DataLoader)  # as timm's prefetcher
    rule = "a DataLoader" + ": pass its .loader, which is one" * is_around_one
    validation.check_instance(function, "loader", loader, DataLoader, rule)
    return Loader(loader)
