"""The journal: a history as JSON, checked before it is used.

``docs/spec/data-order.md`` ("The journal") specifies its fields.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from .._backend.reference import scalar
from .._utils import JSON, strict_json, validation
from ..derivation import scopes
from .history import STOPPED, Entry, History, Quarantine, Skip
from .order.mixture import UNIT, Source
from .order.spec import KINDS, MAX_N, OrderSpec

FORMAT, VERSION = "fastseed.lineage", 1

_VERSIONS = {"format": FORMAT, "version": VERSION, "derivation": scalar.DERIVATION_VERSION}
_NUMBERS = ("master_seed", "task", "epoch", "step")
_RECORDS: dict[str, Any] = {"entries": Entry, "skips": Skip, "quarantines": Quarantine}
_STEP, _COUNT, _FLAG = (0, 2**62), (0, 2**63 - 1), (0, 1)
_LIMITS = {
    **{"master_seed": (0, scopes.MAX_MASTER), "task": (0, scopes.MAX_TASK)},
    **{"epoch": (0, scopes.MAX_EPOCH + 1), "step": _STEP, "first": _STEP, "last": _STEP},
    **{"position": _COUNT, "order": (STOPPED, 2**31), "ranks": (1, scopes.MAX_RANK + 1)},
    **{"batch_size": (1, MAX_N), "slots": (0, scopes.MAX_RANK)},
    **{"drop_last": _FLAG, "ranks_drop_last": _FLAG, "shuffled": _FLAG},
    **{"n": (-1, MAX_N), "size": (1, MAX_N), "share": (1, UNIT), "skip": (0, MAX_N)},
}


def to_dict(history: History) -> JSON:
    """Return the journal as a JSON object; ``from_dict`` reads it."""
    return {
        **_VERSIONS,
        **{name: getattr(history, name) for name in _NUMBERS},
        "orders": [_order_to_dict(spec) for spec in history.orders],
        "entries": [entry._asdict() for entry in history.entries],
        "skips": [skip._asdict() for skip in history.skips],
        "quarantines": [{**q._asdict(), "samples": list(q.samples)} for q in history.quarantines],
    }


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
    names = (*_VERSIONS, *_NUMBERS, "orders", *_RECORDS)
    fields = _fields(function, argument, given, names)
    for field, value in _VERSIONS.items():
        if fields.pop(field) != value:
            rule = f"{value!r}, as of this version of fastseed"
            raise validation.value_error(function, f"{argument}[{field!r}]", rule, given[field])
    orders = fields.pop("orders")
    orders = [_order(function, f"{argument}['orders'][{i}]", o) for i, o in enumerate(orders)]
    for name, kind in _RECORDS.items():
        fields[name] = _records(function, f"{argument}[{name!r}]", kind, fields[name])
    history = History(**fields, orders=tuple(orders))
    problem = _problem(history)
    if problem is not None:
        raise validation.value_error(function, argument, problem, given)
    return history


def _fields(
    function: str,
    where: str,
    given: JSON,
    names: Iterable[str],
    limits: Mapping[str, tuple[int, int]] = _LIMITS,
) -> dict[str, Any]:
    """Return the fields of an object that has exactly these."""
    validation.check_instance(function, where, given, dict, "an object")
    if set(given) != set(names):
        rule = f"an object of {', '.join(names)}"
        raise validation.value_error(function, where, rule, sorted(map(str, given)))
    found = {}
    for name, value in given.items():
        place = f"{where}[{name!r}]"
        if name in limits:
            value = validation.check_int(function, place, value, *limits[name])
        elif name in ("kind", "name"):
            validation.check_text(function, place, value)
        elif name not in _VERSIONS:
            validation.check_instance(function, place, value, list, "a list")
        found[name] = tuple(value) if name == "samples" else value
    return found


def _records(function: str, where: str, kind: Any, given: list[JSON]) -> tuple[Any, ...]:
    """Return the objects of a list as named tuples."""
    places = (f"{where}[{i}]" for i in range(len(given)))
    parts = zip(places, given, strict=False)
    return tuple(kind(**_fields(function, place, part, kind._fields)) for place, part in parts)


def _order(function: str, where: str, given: JSON) -> OrderSpec:
    validation.check_instance(function, where, given, dict, "an object")
    kind = validation.check_choice(function, f"{where}['kind']", given.get("kind"), tuple(KINDS))
    make: Any = KINDS[kind]
    names = [field.name for field in dataclasses.fields(make)]
    fields = _fields(function, where, given, ("kind", *names), {**_LIMITS, **make.limits})
    del fields["kind"]
    if "sources" in fields:
        fields["sources"] = _records(function, f"{where}['sources']", Source, fields["sources"])
    spec: OrderSpec = make(**fields)
    problem = spec.problem()
    if problem is not None:
        field, rule = problem
        raise validation.value_error(function, f"{where}[{field!r}]", rule, given[field])
    return spec


def _problem(history: History) -> str | None:
    """Return the rule that a journal breaks: its parts are in the order of time."""
    points = [entry.point for entry in history.entries]
    if any(a >= b for a, b in itertools.pairwise(points)):
        return "one whose entries are in order"
    begins = [q.point for q in history.quarantines]
    if begins != sorted(begins):
        return "one whose quarantines are in order"
    most = max((spec.size for spec in history.orders), default=0)
    for samples in (q.samples for q in history.quarantines):
        is_known = all(type(sample) is int and 0 <= sample < most for sample in samples)
        if not is_known or list(samples) != sorted({*samples}):
            return f"one whose quarantines have different samples of [0, {most}), sorted"
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
