"""The journal: the history of a job as JSON, whose digest is checked on loading."""

from __future__ import annotations

import itertools
import json
from typing import Any

from .._backend.reference import scalar
from .._utils import JSON, strict_json, validation
from .history import STOPPED, Entry, History, Quarantine, Skip
from .order.mixture import Source
from .order.spec import KINDS, OrderSpec

# docs/spec/data-order.md ("The journal") specifies its fields.
_VERSIONS: JSON = {
    "format": "fastseed.lineage",
    "version": 1,
    "derivation": scalar.DERIVATION_VERSION,
}
_NUMBERS = ("master_seed", "task", "epoch", "step")


def to_dict(history: History) -> JSON:
    """Return the journal as a JSON object; ``from_dict`` reads it."""
    return strict_json.signed(
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


def _entry_to_dict(entry: Entry) -> JSON:
    default = Entry._field_defaults.items()
    return {name: value for name, value in entry._asdict().items() if (name, value) not in default}


def _order_to_dict(spec: OrderSpec) -> JSON:
    fields: JSON = {"kind": spec.kind, **vars(spec)}
    if spec.sources:
        fields["sources"] = [source._asdict() for source in spec.sources]
    return fields


def to_json(history: History) -> str:
    return json.dumps(to_dict(history), separators=(",", ":"), ensure_ascii=False)


def from_json(function: str, argument: str, text: str | bytes) -> History:
    """Read a journal; TypeError or ValueError if it is damaged."""
    validation.check_instance(function, argument, text, (str, bytes), "the text of a journal")
    try:
        given = strict_json.parse(text)
    except strict_json.Invalid as error:
        raise validation.value_error(function, argument, str(error), text) from error
    return from_dict(function, argument, given)


def from_dict(function: str, argument: str, given: JSON) -> History:
    validation.check_instance(function, argument, given, dict, "a journal, an object of JSON")
    for field, value in _VERSIONS.items():
        if given.get(field) != value:
            rule = f"{value!r}, as of this version of fastseed"
            found = given.get(field)
            raise validation.value_error(function, f"{argument}[{field!r}]", rule, found)
    if not strict_json.is_whole(given):
        rule, found = "the digest of the other fields, one of which is damaged", given.get("sha256")
        raise validation.value_error(function, f"{argument}['sha256']", rule, found)
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
    where = f"{argument}['orders'][...]['kind']"
    kind = validation.check_choice(function, where, fields.pop("kind"), tuple(KINDS))
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
