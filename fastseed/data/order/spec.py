"""What an order is, without the master seed, task and epoch, and how it is cut into steps."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from ..._backend import derive
from ...derivation import streams
from .mixture import Source
from .permutation import Array, Order, Permutation

MAX_N = 2**48
UNKNOWN = -1  # the number of positions of an order whose length is not known

N = TypeVar("N", int, np.ndarray)

KINDS: dict[str, type[OrderSpec]] = {}
"""The classes of orders by their ``kind``."""


class OrderSpec:
    """An order of every epoch; ``at`` makes that of one.

    Each subclass is a frozen dataclass. A journal of ``fastseed.data.steps`` keeps its ``kind`` and
    its fields (``docs/spec/data-order.md``), and reads them within the bounds of ``limits``.
    """

    kind: ClassVar[str]
    limits: ClassVar[dict[str, tuple[int, int]]] = {}  # of integers beside those of every kind
    is_keyed: ClassVar[bool] = True  # False: the order needs no master seed
    is_function: ClassVar[bool] = True  # False: the order is not a function of the epoch

    name: str
    n: int  # positions in an epoch, or UNKNOWN
    sources: tuple[Source, ...] = ()
    shuffled: int = 1  # 0: the samples of a source, or all, keep their order

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls

    def at(self, master_seed: int, task: int, epoch: int) -> Order:
        """Return the order of an epoch."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return a text that is equal for equal orders; a loader's state contains it."""
        return self.name

    def problem(self) -> tuple[str, str] | None:
        """Return a field of a journal that is invalid and the rule that it breaks."""
        return ("n", "positive") if self.n < 1 else None

    @property
    def size(self) -> int:
        """The number of samples of the dataset."""
        return sum(source.size for source in self.sources) or self.n

    def offsets(self) -> list[int]:
        """Return the index of the first sample of each source, and the number of all samples."""
        return list(itertools.accumulate((source.size for source in self.sources), initial=0))

    def share_of(self, samples: Array) -> float:
        """Return which part of the positions of a long epoch has one of ``samples``, sorted."""
        if not self.sources:
            return len(samples) / self.n
        counts = np.diff(np.searchsorted(samples, self.offsets()))
        pairs = zip(self.sources, counts.tolist(), strict=True)
        return float(sum(s.share / 2**32 * count / s.size for s, count in pairs))


@dataclass(frozen=True)
class ShuffleSpec(OrderSpec):
    """The shuffle of n samples."""

    kind = "shuffle"
    name: str
    n: int

    def at(self, master_seed: int, task: int, epoch: int) -> Order:
        scope = derive.scope_key(master_seed, task, epoch, 0)
        return Permutation(self.n, derive.shuffle_key(scope, streams.name_words(self.name), self.n))


@dataclass(frozen=True)
class SequenceSpec(OrderSpec):
    """The order of the dataset."""

    kind, is_keyed, shuffled = "sequence", False, 0
    name: str
    n: int

    def at(self, master_seed: int, task: int, epoch: int) -> Order:
        return Permutation(self.n, None)

    def describe(self) -> str:
        return "in order"


@dataclass(frozen=True)
class OtherSpec(OrderSpec):
    """An order that only its sampler knows."""

    kind, is_function = "other", False
    name: str
    n: int

    def problem(self) -> None:
        return None


# ------------------------------------------------------------------ the cut into steps


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
        samples, size = self.samples_left(position), self.batch_size * (self.slots or 1)
        return samples // size if self.drop_last else -(-samples // size)

    def positions(self, start: int, step: int) -> tuple[int, int]:
        """Return the first position of a step and the one after its last, where 0 is at start."""
        first = start + step * self.step_size
        end = first + self.step_size
        if self.slots:
            return first, end
        return first, min(end, start + self.samples_left(start) * self.ranks)

    def position_after(self, start: int, steps: int) -> int:
        """Return the position after so many steps from ``start`` on; n after the last of them."""
        position = start + steps * self.step_size
        return position if self.n == UNKNOWN else min(position, self.n)

    def place(self, inside: N) -> tuple[N, N, N]:
        """Return rank, slot and row of a position, which is counted from the start of its step."""
        if self.slots:
            slot, row = divmod(inside, self.batch_size)
            return slot % self.ranks, slot, row
        row, rank = divmod(inside, self.ranks)
        return rank, rank, row
