"""The history of a job in a few integers: from where on steps were cut in which way.

A history describes the steps that led to its last one. Steps after the state from which another
attempt resumed are not part of it. As JSON it is a journal, whose digest is checked on loading.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
import json
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .._backend.reference import scalar
from .._utils import JSON, strict_json, validation
from .layout import StepLayout
from .order.mixture import Source
from .order.permutation import Array, Order
from .order.quarantine import Quarantined
from .order.spec import KINDS, OrderSpec

STOPPED = -1  # in place of the number of an order: no step follows

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
    assignment: str = "deal"  # of slots to ranks; a journal leaves this one out

    @property
    def point(self) -> Point:
        return self.epoch, self.step

    def facts(self, spec: OrderSpec) -> dict[str, object]:
        """Return what a loop must have in common with the state that it loads."""
        drops = bool(self.drop_last or self.ranks_drop_last)
        facts = {"order": spec.describe(), "n": spec.n, "drop_last": drops, "slots": self.slots}
        return facts | {"batch_size": self.batch_size} if self.slots else facts

    def layout(self, n: int) -> StepLayout:
        """Return the cut of an order of n positions."""
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


@dataclasses.dataclass(frozen=True)
class History:
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

    def at_step(self, epoch: int, step: int) -> History:
        """Return the history when another step is the next."""
        return dataclasses.replace(self, epoch=epoch, step=step)

    def until(self, epoch: int, step: int) -> History:
        """Return the history when another step was the next."""
        entries = tuple(entry for entry in self.entries if entry.point < (epoch, step))
        return dataclasses.replace(self, entries=entries, epoch=epoch, step=step)

    def with_entry(self, entry: Entry, spec: OrderSpec) -> History:
        """Return the history of a job that continues at ``entry``, whose order is ``spec``.

        Later steps are done again. An attempt that continues as the one before needs no entry.
        """
        at = entry.point
        kept = self.entries[: bisect.bisect_left(self.entries, at)]
        following = self.point if self.has_steps(*self.point) else (self.epoch + 1, 0)
        if kept and following < at:
            epoch, step = following
            kept += (kept[-1]._replace(epoch=epoch, step=step, order=STOPPED),)
        done = self.quarantines_at(*at)
        later = tuple(q._replace(epoch=at[0], step=at[1]) for q in self.quarantines[done:])
        orders = self.orders if spec in self.orders else (*self.orders, spec)
        entry = entry._replace(order=orders.index(spec))
        left = dataclasses.replace(
            self, orders=orders, entries=kept, epoch=at[0], step=at[1],
            quarantines=self.quarantines[:done] + later,
        )  # fmt: skip
        before = left.entry_at(*at)
        is_alike = before is not None and before[3:] == entry[3:]
        if is_alike and entry.position == left.position_at(*at):
            return left
        return dataclasses.replace(left, entries=(*kept, entry))

    @property
    def latest_order(self) -> OrderSpec:
        """The order of the latest entry."""
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
        return any(True for _ in self._spans(epoch, step))

    def spans(self, epoch: int) -> list[Span]:
        """Return the steps of an epoch in order, without those that are skipped.

        Each span ends where another attempt, a skipped range or a quarantine begins.
        """
        return list(self._spans(epoch))

    def _spans(self, epoch: int, since: int = 0) -> Iterator[Span]:
        """Yield the spans of an epoch that have steps from ``since`` on."""
        first = self.entry_at(epoch, 0)
        ends = (bisect.bisect_left(self.entries, point) for point in ((epoch, 1), (epoch + 1, 0)))
        inside = self.entries[slice(*ends)]
        begins = inside if first is None else (first, *inside)
        for i, entry in enumerate(begins):
            if entry.order == STOPPED:
                continue
            last = self.end_of(entry)
            if i + 1 < len(begins):
                last = min(last, begins[i + 1].step)
            yield from self._cut(entry, max(entry.step, since), last)

    def end_of(self, entry: Entry) -> int:
        """Return the step after the last one of the epoch in which an entry begins."""
        layout = entry.layout(self.orders[entry.order].end)
        return entry.step + layout.steps_left(entry.position)

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
        """Yield the spans of the steps of an entry from ``step`` to ``last - 1``."""
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
        parts = map(operator.attrgetter("samples"), self.quarantines[:quarantines])
        return np.array(sorted({*itertools.chain.from_iterable(parts)}), np.int64)

    def order(self, epoch: int, spec: OrderSpec, quarantines: int) -> Order:
        """Return the order of an epoch, without the samples of the first quarantines."""
        order = spec.at(self.master_seed, self.task, epoch)
        return Quarantined(order, spec.n, self.removed(quarantines)) if quarantines else order


# docs/spec/data-order.md ("The journal") specifies its fields.
_VERSIONS: JSON = {
    "format": "fastseed.lineage",
    "version": 1,
    "derivation": scalar.DERIVATION_VERSION,
}
_NUMBERS = ("master_seed", "task", "epoch", "step")
_LISTS = ("orders", "entries", "skips", "quarantines")
MOST = 10**6
"""The parts that a journal may have, and the steps that are compared one by one: more is wrong."""


def to_dict(history: History) -> JSON:
    """Return the journal as a JSON object; ``from_dict`` reads it."""
    return signed(
        {
            **_VERSIONS,
            **{name: getattr(history, name) for name in _NUMBERS},
            "orders": [_order_to_dict(spec) for spec in history.orders],
            "entries": [_entry_to_dict(entry) for entry in history.entries],
            "skips": [skip._asdict() for skip in history.skips],
            "quarantines": [
                {**q._asdict(), "samples": list(q.samples)} for q in history.quarantines
            ],
        }
    )


def signed(fields: JSON) -> JSON:
    """Return the fields of a journal with their digest, which finds damage."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return {**fields, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _entry_to_dict(entry: Entry) -> JSON:
    default = Entry._field_defaults.items()
    return {name: value for name, value in entry._asdict().items() if (name, value) not in default}


def _order_to_dict(spec: OrderSpec) -> JSON:
    fields: JSON = {"kind": spec.kind, **vars(spec)}
    if spec.sources:
        fields["sources"] = [source._asdict() for source in spec.sources]
    return fields


def to_json(history: History) -> str:
    """Return the journal as JSON text; ``from_json`` reads it."""
    return json.dumps(to_dict(history), separators=(",", ":"), ensure_ascii=False)


def from_json(function: str, argument: str, text: str | bytes) -> History:
    """Read a journal; TypeError or ValueError if it is damaged."""
    try:
        given = strict_json.parse(text)
    except strict_json.Invalid as error:
        raise validation.value_error(function, argument, str(error), text) from error
    return from_dict(function, argument, given)


def from_dict(function: str, argument: str, given: JSON) -> History:
    """Read a journal; TypeError or ValueError if it is damaged."""
    validation.check_instance(function, argument, given, dict, "a journal, an object of JSON")
    for field, value in _VERSIONS.items():
        if given.get(field) != value:
            rule = f"{value!r}, as of this version of fastseed"
            found = given.get(field)
            raise validation.value_error(function, f"{argument}[{field!r}]", rule, found)
    try:
        is_whole = signed({k: v for k, v in given.items() if k != "sha256"}) == given
    except (TypeError, ValueError, RecursionError):  # no JSON
        is_whole = False
    if not is_whole:
        rule = "the digest of the other fields, one of which is damaged"
        found = given.get("sha256")
        raise validation.value_error(function, f"{argument}['sha256']", rule, found)
    count = sum(len(given[name]) for name in _LISTS)
    if count > MOST:
        rule = f"one of at most {MOST} orders, entries, skips and quarantines"
        raise validation.value_error(function, argument, rule, count)
    history = History(
        **{name: given[name] for name in _NUMBERS},
        orders=tuple(_order_from_dict(function, argument, order) for order in given["orders"]),
        entries=tuple(Entry(**entry) for entry in given["entries"]),
        skips=tuple(sorted(Skip(**skip) for skip in given["skips"])),
        quarantines=tuple(
            Quarantine(**{**q, "samples": tuple(q["samples"])}) for q in given["quarantines"]
        ),
    )
    problem = _problem(history)
    if problem is not None:
        raise validation.value_error(function, argument, problem, given)
    return history


def _order_from_dict(function: str, argument: str, given: JSON) -> OrderSpec:
    fields = dict(given)
    kind = validation.check_choice(
        function, f"{argument}['orders'][...]['kind']", fields.pop("kind"), tuple(KINDS)
    )
    if "sources" in fields:
        fields["sources"] = tuple(Source(**source) for source in fields["sources"])
    make: Any = KINDS[kind]
    spec: OrderSpec = make(**fields)
    return spec


def _problem(history: History) -> str | None:
    """Return the rule that a journal breaks: its parts are in the order of time."""
    points = [entry.point for entry in history.entries]
    if any(a >= b for a, b in itertools.pairwise(points)):
        return "one whose entries are in order"
    if not points or points[-1] > history.point or history.entries[-1].order == STOPPED:
        return "one whose last entry is not after its step"
    begins = [q.point for q in history.quarantines]
    if begins != sorted(begins):
        return "one whose quarantines are in order"
    pairs = itertools.pairwise(history.skips)
    if any(a.epoch == b.epoch and a.last >= b.first for a, b in pairs):
        return "one whose skips are ranges apart"
    return None
