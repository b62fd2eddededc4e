"""The micro-batches of steps that are cut into slots, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

from torch.utils.data import BatchSampler

from ..layout import StepLayout
from .samplers import ShuffleSampler


class SlotSampler(BatchSampler):
    """The micro-batches of this rank: slots r, r + w, r + 2 w, ... of each step, for rank r of w.

    Slot s of step t has the ``batch_size`` positions from (t * slots + s) * batch_size on, so
    neither depends on the number of ranks. Positions from n on, of an incomplete last step, are
    those at the front of the order again, of type ``Repeat``.

    Args:
        sampler: the order.
        batch_size: the number of samples of a slot.
        slots: the number of slots of a step.
        drop_last: leave out an incomplete last step.
    """

    def __init__(
        self, sampler: ShuffleSampler, batch_size: int, slots: int, drop_last: bool
    ) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.order, self.slots = sampler, slots
        self.layout = StepLayout(sampler.n, batch_size, slots=slots, drop_last=drop_last)
        self.steps = self.layout.steps_left(0)

    def own_slots(self) -> range:
        """Return the slots of this rank."""
        rank, world_size = self.order._rank_and_size()
        return range(rank, self.slots, world_size)

    def __len__(self) -> int:
        return self.steps * len(self.own_slots())

    def __iter__(self) -> Iterator[list[int]]:
        order, first = self.order._begin()
        own, size, step_size = self.own_slots(), self.batch_size, self.layout.step_size
        for start in range(first, self.steps * step_size, step_size):
            indices = list(order.share(start, 0, 1, step_size))
            for slot in own:
                yield indices[slot * size : (slot + 1) * size]
