"""The micro-batches of steps that are cut into slots, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

from torch.utils.data import BatchSampler

from .shuffle import ShuffleSampler


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
        self.step_size = batch_size * slots
        count = sampler.n // self.step_size if drop_last else -(-sampler.n // self.step_size)
        self.steps = count

    def own_slots(self) -> range:
        """Return the slots of this rank."""
        rank, world_size = self.order.rank_and_size()
        return range(rank, self.slots, world_size)

    def position(self, step: int) -> int:
        """Return the position at which a step starts; n after an incomplete last step."""
        return min(step * self.step_size, self.order.n)

    def __len__(self) -> int:
        return self.steps * len(self.own_slots())

    def __iter__(self) -> Iterator[list[int]]:
        order, first = self.order.begin()
        own, size = self.own_slots(), self.batch_size
        for start in range(first, self.steps * self.step_size, self.step_size):
            indices = list(order.share(start, 0, 1, self.step_size))
            for slot in own:
                yield indices[slot * size : (slot + 1) * size]
