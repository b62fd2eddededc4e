"""What a step of a loop has, whose loader it reads, and where the loop and its epochs end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, ClassVar, NamedTuple

from torch.utils.data import DataLoader

from .._utils import validation
from ..derivation import scopes
from .history import History
from .layout import SlotSource
from .loader.loader import Loader, slot_loader
from .plan import Plan

Step = tuple[int, int, Any]  # epoch, number in it, batch; or micro-batches of the step


class Limits(NamedTuple):
    """What a script says about the steps of its loop; None: nothing."""

    epochs: int | None
    total: int | None  # steps of all epochs
    steps_per_epoch: int | None
    accumulate: int | None  # batches of a step

    @classmethod
    def checked(cls, function: str, **given: int | None) -> Limits:
        """Return them; TypeError or ValueError if one is no number of steps."""
        for name, value in given.items():
            if value is not None:
                low, top = (0, scopes.MAX_EPOCH) if name == "epochs" else (1, scopes.MAX_STEP)
                given[name] = validation.check_int(function, name, value, low, top)
        return cls(**given)

    def cut(self, plan: Plan) -> Plan:
        """Return a plan whose batches are those of whole steps, for the arithmetic of steps."""
        layout = plan.layout._replace(batch_size=plan.layout.batch_size * (self.accumulate or 1))
        return plan._replace(layout=layout, steps=self.steps_per_epoch or 0)

    def steps_of(self, batches: Iterable[Any], drop_last: bool, left: int | None) -> Iterator[Any]:
        """Yield the batches of a loader, or lists of those of a step, at most ``left`` of them."""
        if self.accumulate is None:
            return itertools.islice(batches, left)
        source, count = iter(batches), self.accumulate
        groups = iter(lambda: list(itertools.islice(source, count)), [])
        return itertools.islice((g for g in groups if len(g) == count or not drop_last), left)

    def left(self, done: int, step: int) -> int | None:
        """Return how many steps an epoch has at most after ``step`` of it and ``done`` in all."""
        pairs = (self.steps_per_epoch, step), (self.total, done)
        limits = [limit - taken for limit, taken in pairs if limit is not None]
        return max(0, min(limits)) if limits else None

    def count_epoch(self, history: History, loader: Sized, epoch: int, step: int) -> int:
        """Return how many steps an epoch has from ``step`` on; TypeError if that is not known."""
        if history.latest_order.end >= 0:
            return sum(span.last - span.first for span in history.spans(epoch, step))
        batches, size = len(loader), self.accumulate or 1
        steps = batches // size if history.entries[-1].drop_last else -(-batches // size)
        return max(0, min(steps, self.steps_per_epoch or steps) - step)

    def count_all(self, history: History, loader: Sized, at: tuple[int, int], done: int) -> int:
        """Return how many steps all epochs have from ``at`` on; ``done`` are before it."""
        totals = [] if self.total is None else [self.total - done]
        if self.epochs is not None:
            later = history.ranges_alike(range(at[0] + 1, max(at[0] + 1, self.epochs)))
            steps = self.count_epoch(history, loader, *at) if at[0] < self.epochs else 0
            steps += sum(len(r) * self.count_epoch(history, loader, r[0], 0) for r in later if r)
            totals.append(steps)
        return max(0, min(totals))


class EpochSteps(Iterator[Step]):
    """The steps of one epoch, with ``len()``: how many it yields in all."""

    def __init__(self, steps: Iterator[Step], left: Callable[[], int]) -> None:
        self._steps, self._left, self._given = steps, left, 0

    def __next__(self) -> Step:
        try:
            step = next(self._steps)
        except StopIteration:
            self._left = int
            raise
        self._given += 1
        return step

    def __len__(self) -> int:
        return self._given + self._left()


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
