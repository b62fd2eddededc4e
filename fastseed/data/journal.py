"""The journal: a history as JSON, checked before it is used.

``docs/spec/data-order.md`` ("The journal") specifies its fields.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from .._backend.reference import scalar
from .._utils import JSON, strict_json, validation
from ..derivation import scopes
from .history import STOPPED, Entry, History, Quarantine, Skip
from .order.golden_ratio import UNIT
from .order.mixture import Source
from .order.spec import KINDS, MAX_N, MIXTURE, OTHER, OrderSpec

FORMAT, VERSION = "fastseed.lineage", 1


def to_dict(history: History) -> JSON:
    """Return the journal as a JSON object; ``from_dict`` reads it."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "derivation": scalar.DERIVATION_VERSION,
        "master_seed": history.master_seed,
        "task": history.task,
        "epoch": history.epoch,
        "step": history.step,
        "orders": [_order_to_dict(spec) for spec in history.orders],
        "entries": [entry._asdict() for entry in history.entries],
        "skips": [skip._asdict() for skip in history.skips],
        "quarantines": [{**q._asdict(), "samples": list(q.samples)} for q in history.quarantines],
    }


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
    read = _Reader(function)
    fields = read.fields(argument, given, _JOURNAL)
    versions = ("format", FORMAT), ("version", VERSION)
    for field, value in (*versions, ("derivation", scalar.DERIVATION_VERSION)):
        if fields.pop(field) != value:
            rule = f"{value!r}, as of this version of fastseed"
            where = f"{argument}[{field!r}]"
            raise validation.value_error(function, where, rule, given[field])
    parts = enumerate(fields.pop("orders"))
    orders = tuple(read.order(f"{argument}['orders'][{i}]", part) for i, part in parts)
    parsed = {
        name: read.records(f"{argument}[{name!r}]", fields.pop(name), names)
        for name, names in _LISTS.items()
    }
    entries = tuple(Entry(**part) for _, part in parsed["entries"])
    skips = tuple(Skip(**part) for _, part in parsed["skips"])
    most = max((spec.size for spec in orders), default=0) - 1
    quarantines = tuple(
        Quarantine(part["epoch"], part["step"], read.samples(where, part["samples"], most))
        for where, part in parsed["quarantines"]
    )
    history = History(
        **fields, orders=orders, entries=entries, skips=skips, quarantines=quarantines
    )
    problem = _problem(history)
    if problem is not None:
        raise validation.value_error(function, argument, problem, given)
    return history


def _order_to_dict(spec: OrderSpec) -> JSON:
    fields: JSON = {"kind": spec.kind, "name": spec.name, "n": spec.n}
    if spec.kind == MIXTURE:
        fields["sources"] = [source._asdict() for source in spec.sources]
        fields["shuffled"] = spec.shuffled
    return fields


def _problem(history: History) -> str | None:
    """Return the rule that a journal breaks: its parts are in the order of time."""
    points = [entry.point for entry in history.entries]
    if any(a >= b for a, b in itertools.pairwise(points)):
        return "one whose entries are in order"
    begins = [q.point for q in history.quarantines]
    if begins != sorted(begins):
        return "one whose quarantines are in order"
    ranges = sorted(history.skips)
    apart = all(a.epoch < b.epoch or a.last < b.first for a, b in itertools.pairwise(ranges))
    if not apart or any(skip.last < skip.first for skip in ranges):
        return "one whose skips are ranges apart"
    for entry in history.entries:
        if entry.order >= len(history.orders):
            return f"one whose entries have one of its {len(history.orders)} orders"
        n = history.orders[entry.order].n if entry.order != STOPPED else -1
        if entry.layout(n).step_size > 2**62 or 0 <= n < entry.position:
            return "one whose entries begin inside their order, with steps of at most 2**62 samples"
    return None


_MOST_ELEMENTS = 2**20  # of a list
_STEP, _COUNT = (0, 2**62), (0, 2**63 - 1)
_LIMITS = {
    **{"version": (0, 2**31), "derivation": (0, 2**31), "task": (0, scopes.MAX_TASK)},
    **{"master_seed": (0, scopes.MAX_MASTER), "epoch": (0, scopes.MAX_EPOCH + 1)},
    **{"step": _STEP, "first": _STEP, "last": _STEP, "position": _COUNT},
    **{"order": (STOPPED, _MOST_ELEMENTS), "ranks": (1, scopes.MAX_RANK + 1)},
    **{"batch_size": (1, MAX_N), "slots": (0, scopes.MAX_RANK)},
    **{"drop_last": (0, 1), "ranks_drop_last": (0, 1), "shuffled": (0, 1)},
    **{"n": (-1, MAX_N), "size": (1, MAX_N), "share": (1, UNIT), "skip": (0, MAX_N)},
}
_TEXTS = ("format", "kind", "name")
_LISTS = {
    "entries": Entry._fields,
    "skips": Skip._fields,
    "quarantines": Quarantine._fields,
}
_JOURNAL = (
    *("format", "version", "derivation", "master_seed", "task", "epoch", "step"),
    *("orders", *_LISTS),
)


class _Reader:
    """Checks of the fields of a journal, which may come from anywhere."""

    def __init__(self, function: str) -> None:
        self._function = function

    def fields(self, where: str, given: JSON, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the fields of an object that has exactly these."""
        validation.check_instance(self._function, where, given, dict, "an object")
        if set(given) != set(names):
            rule = f"an object of {', '.join(names)}"
            raise validation.value_error(self._function, where, rule, sorted(map(str, given)))
        return {name: self._field(f"{where}[{name!r}]", name, given[name]) for name in names}

    def _field(self, where: str, name: str, value: JSON) -> Any:
        if name in _LIMITS:
            return validation.check_int(self._function, where, value, *_LIMITS[name])
        if name in _TEXTS:
            return validation.check_text(self._function, where, value)
        found = validation.check_instance(self._function, where, value, list, "a list")
        if len(found) > _MOST_ELEMENTS:
            rule = f"of at most {_MOST_ELEMENTS} elements"
            raise validation.value_error(self._function, where, rule, len(found))
        return found

    def records(
        self, where: str, given: list[JSON], names: tuple[str, ...]
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return the place and the fields of each object of a list."""
        places = [f"{where}[{i}]" for i in range(len(given))]
        pairs = zip(places, given, strict=True)
        return [(place, self.fields(place, part, names)) for place, part in pairs]

    def order(self, where: str, given: JSON) -> OrderSpec:
        """Return an order."""
        validation.check_instance(self._function, where, given, dict, "an object")
        kind = validation.check_choice(self._function, f"{where}['kind']", given.get("kind"), KINDS)
        if kind != MIXTURE:
            spec = OrderSpec(**self.fields(where, given, ("kind", "name", "n")))
            if spec.n < 1 and kind != OTHER:
                raise validation.value_error(self._function, f"{where}['n']", "positive", spec.n)
            return spec
        fields = self.fields(where, given, ("kind", "name", "n", "sources", "shuffled"))
        place = f"{where}['sources']"
        parts = self.records(place, fields.pop("sources"), Source._fields)
        spec = OrderSpec(**fields, sources=tuple(Source(**part) for _, part in parts))
        for source in spec.sources:
            scopes.check_name(self._function, source.name)
        names, total = {s.name for s in spec.sources}, sum(s.share for s in spec.sources)
        if total != UNIT or len(names) != len(spec.sources) or spec.size > MAX_N or spec.n < 1:
            rule = "of different names, with shares of sum 2**32 and at most 2**48 samples"
            raise validation.value_error(self._function, place, rule, given["sources"])
        return spec

    def samples(self, where: str, given: list[JSON], most: int) -> tuple[int, ...]:
        """Return the samples of a quarantine."""
        samples = tuple(
            validation.check_int(self._function, f"{where}['samples'][{i}]", sample, 0, most)
            for i, sample in enumerate(given)
        )
        if not samples or list(samples) != sorted(set(samples)):
            rule = "different samples, sorted"
            raise validation.value_error(self._function, f"{where}['samples']", rule, samples)
        return samples
