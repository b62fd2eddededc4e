"""The history of a job in a few integers: from where on steps were cut in which way.

A journal describes the steps that led to its last one. Steps after the state from which another
attempt resumed are not part of it. ``docs/spec/data-order.md`` specifies its fields.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from ..._backend.reference import scalar
from ..._utils import JSON
from .orders import OTHER, OrderSpec

FORMAT, VERSION = "fastseed.lineage", 1
STOPPED = -1  # in place of the number of an order: no step follows

Point = tuple[int, int]
"""An epoch and the number of a step in it."""


class Entry(NamedTuple):
    """How steps are cut from (epoch, step) on, which begins at a position of the order."""

    epoch: int
    step: int
    position: int
    order: int  # the number of the order, or STOPPED
    ranks: int
    batch_size: int  # samples of a micro-batch
    slots: int  # micro-batches of a step, whatever the ranks; 0: one of each rank
    drop_last: int  # 1: an incomplete last batch, or step of slots, is left out
    ranks_drop_last: int  # 1: positions that do not suffice for all ranks are left out

    @property
    def point(self) -> Point:
        """The first step."""
        return self.epoch, self.step

    @property
    def step_size(self) -> int:
        """Positions of a step."""
        return self.batch_size * (self.slots or self.ranks)

    def left(self, n: int) -> int:
        """Return how many steps of an epoch of n positions are left."""
        if self.slots:
            steps = n // self.step_size if self.drop_last else -(-n // self.step_size)
            return max(0, steps - self.step)
        samples = self.own_samples(n)
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def own_samples(self, n: int) -> int:
        """Return how many samples of an epoch are left for each rank."""
        rest = max(0, n - self.position)
        return rest // self.ranks if self.ranks_drop_last else -(-rest // self.ranks)


class Skip(NamedTuple):
    """Steps of an epoch that are left out, from ``first`` to ``last``."""

    epoch: int
    first: int
    last: int


class Quarantine(NamedTuple):
    """Samples that do not come from (epoch, step) on."""

    epoch: int
    step: int
    samples: tuple[int, ...]

    @property
    def point(self) -> Point:
        """The first step without them."""
        return self.epoch, self.step


class Span(NamedTuple):
    """Steps ``first`` to ``last - 1`` of an epoch, cut in one way out of one order."""

    epoch: int
    first: int
    last: int
    entry: Entry  # with the step and position at which it begins in this epoch
    quarantines: int  # how many are in force

    def positions(self, step: int, n: int) -> tuple[int, int]:
        """Return the first position of a step, and the one after its last."""
        entry = self.entry
        start = entry.position + (step - entry.step) * entry.step_size
        end = start + entry.step_size
        if entry.slots:
            return start, end
        return start, min(end, entry.position + entry.own_samples(n) * entry.ranks)


@dataclasses.dataclass(frozen=True)
class Journal:
    """The history of a job up to (epoch, step), the next step."""

    master_seed: int
    task: int
    orders: tuple[OrderSpec, ...] = ()
    entries: tuple[Entry, ...] = ()
    skips: tuple[Skip, ...] = ()
    quarantines: tuple[Quarantine, ...] = ()
    epoch: int = 0
    step: int = 0

    @property
    def point(self) -> Point:
        """The next step."""
        return self.epoch, self.step

    def moved(self, epoch: int, step: int) -> Journal:
        """Return the journal when another step is the next."""
        return dataclasses.replace(self, epoch=epoch, step=step)

    def changed(self, **fields: tuple[Skip, ...] | tuple[Quarantine, ...]) -> Journal:
        """Return the journal with other skips or quarantines."""
        return dataclasses.replace(self, **fields)  # type: ignore[arg-type]

    def begun(self, entry: Entry, spec: OrderSpec) -> Journal:
        """Return the journal of a job that continues at ``entry``, whose order is ``spec``.

        What it has of later steps is left out: they are done again. An attempt that continues as
        the one before needs no entry.
        """
        at = entry.point
        kept = tuple(e for e in self.entries if e.point < at)
        following = self.point if self.has_steps(*self.point) else (self.epoch + 1, 0)
        if kept and following < at:
            epoch, step = following
            kept += (kept[-1]._replace(epoch=epoch, step=step, order=STOPPED),)
        quarantines = tuple(
            q if q.point <= at else q._replace(epoch=at[0], step=at[1]) for q in self.quarantines
        )
        orders = self.orders if spec in self.orders else (*self.orders, spec)
        entry = entry._replace(order=orders.index(spec))
        left = dataclasses.replace(
            self, orders=orders, entries=kept, quarantines=quarantines, epoch=at[0], step=at[1]
        )
        before = left.entry_at(*at)
        if before is not None and before[3:] == entry[3:]:
            expected = Span(*at, at[1], before, 0).positions(at[1], spec.n)[0]
            if entry.position in (expected, spec.n):
                return left
        return dataclasses.replace(left, entries=(*kept, entry))

    def entry_at(self, epoch: int, step: int) -> Entry | None:
        """Return the entry that decides about a step, as it begins in this epoch."""
        count = bisect.bisect_left(self.entries, (epoch, step + 1))
        found = self.entries[count - 1] if count else None
        if found is None or found.epoch == epoch:
            return found
        return found._replace(epoch=epoch, step=0, position=0)

    def has_steps(self, epoch: int, step: int) -> bool:
        """Return True if a step of this number or a greater one is in the epoch."""
        return any(span.last > step for span in self.spans(epoch))

    def spans(self, epoch: int) -> list[Span]:
        """Return the steps of an epoch in order, without those that are skipped.

        Each span ends where another attempt, a skipped range or a quarantine begins.
        """
        first = self.entry_at(epoch, 0)
        ends = (bisect.bisect_left(self.entries, point) for point in ((epoch, 1), (epoch + 1, 0)))
        inside = self.entries[slice(*ends)]
        begins = inside if first is None else (first, *inside)
        found: list[Span] = []
        for i, entry in enumerate(begins):
            if entry.order == STOPPED:
                continue
            last = entry.step + self._left(entry)
            if i + 1 < len(begins):
                last = min(last, begins[i + 1].step)
            found += self._cut(entry, last)
        return found

    def alike(self, epochs: range) -> Iterator[range]:
        """Yield parts of ``epochs`` whose spans differ in the number of the epoch alone."""
        events = {e.epoch for part in (self.entries, self.skips, self.quarantines) for e in part}
        cuts = {cut for epoch in events for cut in (epoch, epoch + 1) if cut in epochs[1:]}
        for first, end in itertools.pairwise((epochs.start, *sorted(cuts), epochs.stop)):
            yield range(first, end)

    def _left(self, entry: Entry) -> int:
        n = self.orders[entry.order].n
        return 2**63 if n < 0 else entry.left(n)

    def _cut(self, entry: Entry, last: int) -> Iterator[Span]:
        """Yield the spans of the steps of an entry before ``last``."""
        epoch, first = entry.epoch, entry.step
        skips = sorted((s.first, s.last + 1) for s in self.skips if s.epoch == epoch)
        cuts = [q.step for q in self.quarantines if q.epoch == epoch]
        for begin, end in (*skips, (last, last)):
            end_of_part = min(begin, last)
            inside = slice(*(bisect.bisect_left(cuts, edge) for edge in (first, end_of_part)))
            for cut in (*cuts[inside], end_of_part):
                if first < (cut := min(cut, end_of_part)):
                    yield Span(epoch, first, cut, entry, self.in_force(epoch, first))
                    first = cut
            first = max(first, end)

    def in_force(self, epoch: int, step: int) -> int:
        """Return how many of the quarantines are in force in a step."""
        return bisect.bisect_right(self.quarantines, (epoch, step), key=lambda q: q.point)

    def skipped_from(self, epoch: int, step: int) -> int:
        """Return the first step from ``step`` on that is not skipped."""
        for skip in sorted(self.skips):
            if skip.epoch == epoch and skip.first <= step <= skip.last:
                step = skip.last + 1
        return step

    def is_unknown(self, entry: Entry) -> bool:
        """Return True if the order of an entry is not a function of the epoch."""
        return self.orders[entry.order].kind == OTHER

    def to_dict(self) -> JSON:
        """Return the journal as a JSON object; ``parse`` reads it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "derivation": scalar.DERIVATION_VERSION,
            "master_seed": self.master_seed,
            "task": self.task,
            "epoch": self.epoch,
            "step": self.step,
            "orders": [spec.to_dict() for spec in self.orders],
            "entries": [entry._asdict() for entry in self.entries],
            "skips": [skip._asdict() for skip in self.skips],
            "quarantines": [{**q._asdict(), "samples": list(q.samples)} for q in self.quarantines],
        }
