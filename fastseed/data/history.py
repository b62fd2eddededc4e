"""The history of a job in a few integers: from where on steps were cut in which way.

A history describes the steps that led to its last one. Steps after the state from which another
attempt resumed are not part of it.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from .._backend import tensors
from .._utils import validation
from ..derivation import scopes
from .layout import StepLayout
from .order.permutation import RESERVE, Array, Order, Quarantined
from .order.spec import OrderSpec

STOPPED = -1  # in place of the number of an order: no step follows
MOST_REMOVED = 0.5  # the part of the positions: each needs two spare ones then

Point = tuple[int, int]  # an epoch and the number of a step in it


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
    assignment: str = "deal"  # of slots to ranks; a journal leaves this one out, and the next
    steps: int = 0  # with which an epoch ends at the latest; 0: with its last position

    @property
    def point(self) -> Point:
        return self.epoch, self.step

    def facts(self, spec: OrderSpec) -> dict[str, object]:
        """Return what a loop must have in common with the state that it loads."""
        drops = bool(self.drop_last or self.ranks_drop_last)
        facts = {"order": spec.describe(), "n": spec.n, "drop_last": drops, "slots": self.slots}
        return facts | {"batch_size": self.batch_size} if self.slots else facts

    def layout(self, n: int) -> StepLayout:
        flags = bool(self.drop_last), bool(self.ranks_drop_last)
        return StepLayout(n, self.batch_size, self.ranks, self.slots, *flags, self.assignment)


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
        return self.epoch, self.step


class Span(NamedTuple):
    """Steps ``first`` to ``last - 1`` of an epoch, cut in one way out of one order."""

    epoch: int
    first: int
    last: int
    entry: Entry  # with the step and position at which it begins in this epoch
    spec: OrderSpec
    quarantines: int  # how many are in force

    @property
    def layout(self) -> StepLayout:
        return self.entry.layout(self.spec.end)

    def positions(self, step: int) -> tuple[int, int]:
        """Return the first position of a step and the one after its last."""
        return self.layout.positions(self.entry.position, step - self.entry.step)


class History(NamedTuple):
    """What a job did up to (epoch, step), the next step; its methods return another history."""

    master_seed: int
    task: int
    orders: tuple[OrderSpec, ...] = ()
    entries: tuple[Entry, ...] = ()
    skips: tuple[Skip, ...] = ()  # sorted, and apart
    quarantines: tuple[Quarantine, ...] = ()
    epoch: int = 0
    step: int = 0

    @property
    def point(self) -> Point:
        """The next step."""
        return self.epoch, self.step

    def until(self, epoch: int, step: int) -> History:
        """Return the history when another step was the next."""
        entries = tuple(entry for entry in self.entries if entry.point < (epoch, step))
        return self._replace(entries=entries, epoch=epoch, step=step)

    def with_entry(self, entry: Entry, spec: OrderSpec) -> History:
        """Return the history of a job that continues at ``entry``, whose order is ``spec``.

        Later steps are done again. An attempt that continues as the one before needs no entry.
        """
        at = entry.point
        kept = self.entries[: bisect.bisect_left(self.entries, at)]
        if kept:
            epoch, step = self.point if self.has_steps(*self.point) else (self.epoch + 1, 0)
            if (epoch, step) < at:
                kept += (kept[-1]._replace(epoch=epoch, step=step, order=STOPPED),)
        done = self.quarantines_at(*at)
        later = tuple(q._replace(epoch=at[0], step=at[1]) for q in self.quarantines[done:])
        orders = self.orders if spec in self.orders else (*self.orders, spec)
        entry = entry._replace(order=orders.index(spec))
        left = self._replace(orders=orders, entries=kept, epoch=at[0], step=at[1])
        left = left._replace(quarantines=self.quarantines[:done] + later)
        before = left.entry_at(*at)
        is_alike = before is not None and before[3:] == entry[3:]
        if is_alike and entry.position == left.position_at(*at):
            return left
        return left._replace(entries=(*kept, entry))

    @property
    def latest_order(self) -> OrderSpec:
        return self.orders[self.entries[-1].order]

    def entry_at(self, epoch: int, step: int) -> Entry | None:
        """Return the entry that decides about a step, as it begins in this epoch."""
        count = bisect.bisect_left(self.entries, (epoch, step + 1))
        found = self.entries[count - 1] if count else None
        if found is None or found.epoch == epoch:
            return found
        return found._replace(epoch=epoch, step=0, position=0)

    def has_steps(self, epoch: int, step: int) -> bool:
        """Return True if a step of this number or a greater one is in the epoch."""
        return any(True for _ in self.spans(epoch, step))

    def spans(self, epoch: int, since: int = 0) -> Iterator[Span]:
        """Yield the steps of an epoch from ``since`` on in order, without those that are skipped.

        Each span ends where another attempt, a skipped range or a quarantine begins.
        """
        first = self.entry_at(epoch, 0)
        i, end = (bisect.bisect_left(self.entries, at) for at in ((epoch, 1), (epoch + 1, 0)))
        begins = [*([] if first is None else [first]), *self.entries[i:end]]
        for entry, following in itertools.zip_longest(begins, begins[1:]):
            if entry.order != STOPPED:
                end = self.end_of(entry)
                last = end if following is None else min(end, following.step)
                yield from self._cut(entry, max(entry.step, since), last)

    def end_of(self, entry: Entry) -> int:
        """Return the step after the last one of the epoch in which an entry begins."""
        layout = entry.layout(self.orders[entry.order].end)
        end = entry.step + layout.steps_left(entry.position)
        return min(end, max(entry.step, entry.steps)) if entry.steps else end

    def position_at(self, epoch: int, step: int) -> int:
        """Return the position at which a step begins; n after the last one of an epoch."""
        entry = self.entry_at(epoch, step)
        if entry is None or entry.order == STOPPED:
            return 0
        layout = entry.layout(self.orders[entry.order].end)
        return layout.position_after(entry.position, step - entry.step)

    def ranges_alike(self, epochs: range) -> Iterator[range]:
        """Yield parts of ``epochs`` whose spans differ in the number of the epoch alone."""
        events = {e.epoch for part in (self.entries, self.skips, self.quarantines) for e in part}
        cuts = {cut for epoch in events for cut in (epoch, epoch + 1) if cut in epochs[1:]}
        for first, end in itertools.pairwise((epochs.start, *sorted(cuts), epochs.stop)):
            yield range(first, end)

    def _cut(self, entry: Entry, step: int, last: int) -> Iterator[Span]:
        epoch, spec = entry.epoch, self.orders[entry.order]
        while (step := self.first_kept(epoch, step)) < last:
            i, count = bisect.bisect(self.skips, (epoch, step)), self.quarantines_at(epoch, step)
            coming = (*self.skips[i : i + 1], *self.quarantines[count : count + 1])
            end = min([last, *(at for of, at, _ in coming if of == epoch)])
            yield Span(epoch, step, end, entry, spec, count)
            step = end

    def first_kept(self, epoch: int, step: int) -> int:
        """Return the first step from ``step`` on that is not skipped."""
        i = max(0, bisect.bisect(self.skips, (epoch, step + 1)) - 1)
        while i < len(self.skips) and self.skips[i][:2] <= (epoch, step):
            if self.skips[i].epoch == epoch:
                step = max(step, self.skips[i].last + 1)
            i += 1
        return step

    def quarantines_at(self, epoch: int, step: int) -> int:
        """Return how many of the quarantines are in force in a step."""
        return bisect.bisect_right(self.quarantines, (epoch, step), key=lambda q: q.point)

    def removed(self, quarantines: int) -> Array:
        """Return the samples of the first quarantines, sorted."""
        samples = {sample for q in self.quarantines[:quarantines] for sample in q.samples}
        return np.array(sorted(samples), np.int64)

    def order(self, epoch: int, spec: OrderSpec, quarantines: int) -> Order:
        """Return the order of an epoch, without the samples of the first quarantines."""
        order = spec.at(self.master_seed, self.task, epoch)
        return Quarantined(order, spec.n, self.removed(quarantines)) if quarantines else order


def check_known(function: str, argument: str, spec: OrderSpec) -> OrderSpec:
    """Return an order; ValueError unless it is a function of the epoch."""
    if not spec.is_function:
        rule = "a ShuffleSampler or MixtureSampler, or of shuffle=True: a function of the epoch"
        raise validation.value_error(function, argument, rule, spec.name)
    return spec


def indices_of(
    function: str, argument: str, specs: list[OrderSpec], given: Any, source: str | None
) -> Array:
    """Return one index or several, of the dataset or of a source, that one of the orders has."""
    if not specs:
        raise RuntimeError(f"fastseed.{function}: the journal has no step yet: iterate first")
    if not any(spec.is_function for spec in specs):
        check_known(function, "the order", specs[-1])
    sizes = [spec.size for spec in specs]
    if source is not None:
        parts = [part for spec in specs for part in spec.sources]
        names = dict.fromkeys(part.name for part in parts)
        validation.check_choice(function, "source", source, tuple(names) or (None,))
        sizes = [part.size for part in parts if part.name == source]
    top = max(sizes) - 1
    if getattr(given, "ndim", 1) == 0:
        given = given.reshape(1)
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        given = [validation.check_int(function, argument, given, 0, top)]
    elif isinstance(given, np.ndarray) and given.dtype.kind in "iu":
        given = torch.from_numpy(given.astype(np.int64))
    elif not isinstance(given, torch.Tensor):
        given = list(given)
    cpu = torch.device("cpu")
    found = tensors.as_int64(function, argument, given, len(given), 0, top, cpu).to(cpu)
    tensors.check_values(function, argument, found, top)
    return found.numpy()


def shift(spec: OrderSpec, samples: Array, source: str | None) -> Array:
    """Return those of ``samples``, of the dataset or of a source, that an order has."""
    if source is None:
        return samples[samples < spec.size]
    for part, offset in zip(spec.sources, spec.offsets(), strict=False):
        if part.name == source:
            return samples[samples < part.size] + offset
    return samples[:0]


def with_skip(function: str, history: History, epoch: int, first: int, last: int) -> History:
    """Return a history without some steps to come; ValueError if they are not."""
    epoch = validation.check_int(function, "epoch", epoch, 0, scopes.MAX_EPOCH)
    first = validation.check_int(function, "first_step", first, 0, scopes.MAX_STEP)
    last = validation.check_int(function, "last_step", last, first, scopes.MAX_STEP)
    if (epoch, first) < history.point:
        rule = f"not before step {history.step} of epoch {history.epoch}, which is next"
        raise validation.value_error(function, "first_step", rule, (epoch, first))
    check_known(function, "the order of the loader", history.latest_order)
    entry = history.entry_at(epoch, first)
    end = 0 if entry is None else history.end_of(entry)
    if last >= end:
        rule = f"below {end}, the number of steps of epoch {epoch}"
        raise validation.value_error(function, "last_step", rule, last)
    skips = history.skips
    i = bisect.bisect(skips, (epoch, first))
    for skip in skips[max(0, i - 1) : i + 1]:
        if skip.epoch == epoch and skip.first <= last and first <= skip.last:
            rule = f"apart from steps {skip.first} to {skip.last}, which are skipped already"
            raise validation.value_error(function, "first_step", rule, (first, last))
    skips = (*skips[:i], Skip(epoch, first, last), *skips[i:])
    return history._replace(skips=skips)


def with_quarantine(function: str, history: History, samples: Any, source: str | None) -> History:
    """Return a history without samples from the next step on; ValueError if they are too many."""
    spec = check_known(function, "the order of the loader", history.latest_order)
    indices = shift(spec, indices_of(function, "samples", [spec], samples, source), source)
    known = history.removed(len(history.quarantines))
    new = np.setdiff1d(indices, known)
    if not len(new):
        return history
    gone = np.union1d(new, known)
    entry = history.entries[-1]
    if entry.layout(spec.end).step_size > RESERVE:
        rule = f"no samples in steps of more than {RESERVE}"
        raise validation.value_error(function, "samples", rule, len(new))
    if spec.share_of(gone) > MOST_REMOVED:
        rule = "of at most half of the positions of the order, with those removed before"
        raise validation.value_error(function, "samples", rule, len(gone))
    quarantine = Quarantine(*history.point, tuple(new.tolist()))
    return history._replace(quarantines=(*history.quarantines, quarantine))
