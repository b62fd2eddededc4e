"""How positions are cut into steps: for ranks that take turns, or into slots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

UNKNOWN = -1  # the number of positions of an order whose length is not known
ASSIGNMENTS = ("blocks", "deal")  # of the slots of a step to ranks

N = TypeVar("N", int, np.ndarray)


@runtime_checkable
class SlotSource(Protocol):
    """What says into how many slots a step is cut, and which of them a rank has."""

    @property
    def slots(self) -> int: ...

    @property
    def assignment(self) -> str: ...


def own_slots(slots: int, rank: int, ranks: int, assignment: str) -> range:
    """Return the slots of a rank: neighbours, of which a rank may have none; or every w-th."""
    if assignment == "blocks":
        return range(rank * slots // ranks, (rank + 1) * slots // ranks)
    return range(rank, slots, ranks)


class StepLayout(NamedTuple):
    """The cut of an order into steps, of one batch of each rank or of ``slots`` batches.

    ``docs/spec/data-order.md`` ("From positions to steps") specifies it.
    """

    n: int  # positions in an epoch, or UNKNOWN
    batch_size: int = 1
    ranks: int = 1
    slots: int = 0  # batches of a step; 0: one of each rank
    drop_last: bool = False  # leave out an incomplete last batch, or step of slots
    ranks_drop_last: bool = False  # leave out positions that do not suffice for all ranks
    assignment: str = "deal"  # of slots to ranks, as ``own_slots`` has them

    @property
    def step_size(self) -> int:
        """Positions of a step."""
        return self.batch_size * (self.slots or self.ranks)

    def samples_left(self, position: int) -> int:
        """Return how many samples each rank (with slots: the job) has from a position on."""
        rest, turns = max(0, self.n - position), 1 if self.slots else self.ranks
        return rest // turns if self.ranks_drop_last else -(-rest // turns)

    def steps_left(self, position: int) -> int:
        """Return how many steps begin at a position and after it; 2**63 where n is not known."""
        if self.n == UNKNOWN:
            return 2**63
        samples = self.samples_left(position)
        size = self.batch_size * (self.slots or 1)
        return samples // size if self.drop_last else -(-samples // size)

    def batches_of(self, rank: int) -> int:
        """Return how many batches a rank has of samples that do not begin again at the end."""
        whole, rest = divmod(self.n, self.step_size)
        return whole + (rest > rank and not self.drop_last)

    @property
    def is_even(self) -> bool:
        """True if all ranks have as many batches of such samples, as far as is known."""
        is_equal = self.batches_of(0) == self.batches_of(self.ranks - 1)
        return self.drop_last or (self.n != UNKNOWN and is_equal)

    def positions(self, start: int, step: int) -> tuple[int, int]:
        """Return the first position of a step and the one after its last, where 0 is at start."""
        first = start + step * self.step_size
        end = first + self.step_size
        if self.slots:
            return first, end
        return first, min(end, start + self.samples_left(start) * self.ranks)

    def slots_of(self, rank: int) -> range:
        return own_slots(self.slots, rank, self.ranks, self.assignment)

    def micro_batches(self, order: Any, rank: int, start: int) -> Iterator[list[int]]:
        """Yield the batches of a rank's slots, from a position of an order on."""
        size, own = self.batch_size, self.slots_of(rank)
        for step in range(self.steps_left(start)):
            first, end = self.positions(start, step)
            indices = list(order.share(first, 0, 1, end - first))
            for slot in own:
                yield indices[slot * size : (slot + 1) * size]

    def position_after(self, start: int, steps: int) -> int:
        """Return the position after so many steps from ``start`` on; n after the last of them."""
        position = start + steps * self.step_size
        return position if self.n == UNKNOWN else min(position, self.n)

    def place(self, inside: N) -> tuple[N, N, N]:
        """Return rank, slot and row of a position, which is counted from the start of its step."""
        if self.slots:
            slot, row = divmod(inside, self.batch_size)
            if self.assignment == "blocks":
                return ((slot + 1) * self.ranks - 1) // self.slots, slot, row
            return slot % self.ranks, slot, row
        row, rank = divmod(inside, self.ranks)
        return rank, rank, row
