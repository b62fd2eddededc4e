"""Journals that come from states and files, checked before they are used."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping

from ..._backend.reference import scalar
from ..._utils import JSON, regular_file, strict_json, validation
from ...derivation import scopes
from .answers import Lineage
from .fields import check_fields, check_list
from .journal import FORMAT, STOPPED, VERSION, Entry, Journal, Point, Quarantine, Skip
from .orders import OrderSpec, parse_order

_FUNCTION = "data.lineage.read"
_MOST_BYTES = 1 << 24
_EPOCH, _STEP = (0, scopes.MAX_EPOCH + 1), (0, 2**62)
_ENTRY = {
    "epoch": _EPOCH,
    "step": _STEP,
    "position": (0, 2**63 - 1),
    "order": (STOPPED, 2**20),
    "ranks": (1, scopes.MAX_RANK + 1),
    "batch_size": (1, 2**48),
    "slots": (0, scopes.MAX_RANK),
    "drop_last": (0, 1),
    "ranks_drop_last": (0, 1),
}


def read(source: Mapping[str, JSON] | str | os.PathLike[str]) -> Lineage:
    """Return the lineage of a journal.

    Args:
        source: the file that ``Lineage.export`` wrote; or what it contains; or what
            ``state_dict`` of ``fastseed.data.steps`` returned.

    Raises:
        TypeError, ValueError: it is damaged, of another version, or no journal.
        OSError: the file cannot be read.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=2)
        >>> epoch, step, batch = next(iter(steps))
        >>> fastseed.data.lineage.read(steps.state_dict()).at(0, 0).sample.tolist()
        [2, 7, 6, 4]
    """
    if isinstance(source, Mapping):
        found = source.get("journal", source) if "format" in source else source
        if isinstance(found, str):
            return Lineage(parse(_FUNCTION, "source['journal']", found))
        return Lineage(parse_fields(_FUNCTION, "source", found))
    path = validation.check_path(_FUNCTION, "source", source)
    try:
        text = regular_file.read(path, _MOST_BYTES)
    except ValueError as error:
        raise validation.value_error(_FUNCTION, "source", str(error), path) from error
    return Lineage(parse(_FUNCTION, "source", text))


def parse(function: str, argument: str, text: str | bytes) -> Journal:
    """Return the journal in a JSON text; TypeError or ValueError if it is damaged."""
    try:
        given = strict_json.parse(text)
    except strict_json.Invalid as error:
        raise validation.value_error(function, argument, str(error), text) from error
    return parse_fields(function, argument, given)


def parse_fields(function: str, argument: str, given: JSON) -> Journal:
    """Return the journal of a JSON object; TypeError or ValueError if it is damaged."""
    texts, lists = ("format",), ("orders", "entries", "skips", "quarantines")
    bounds = {
        "version": (0, 2**31),
        "derivation": (0, 2**31),
        "master_seed": (0, scopes.MAX_MASTER),
        "task": (0, scopes.MAX_TASK),
        "epoch": _EPOCH,
        "step": _STEP,
    }
    numbers = check_fields(function, argument, given, bounds, texts, lists)
    expected = {"format": FORMAT, "version": VERSION, "derivation": scalar.DERIVATION_VERSION}
    for field, value in expected.items():
        if given[field] != value:
            rule = f"{value!r}, as of this version of fastseed"
            raise validation.value_error(function, f"{argument}[{field!r}]", rule, given[field])
    orders, entries, skips, quarantines = (
        [
            (f"{argument}[{name!r}][{i}]", part)
            for i, part in enumerate(check_list(function, f"{argument}[{name!r}]", given[name]))
        ]
        for name in lists
    )
    specs = tuple(parse_order(function, where, part) for where, part in orders)
    journal = Journal(
        numbers["master_seed"],
        numbers["task"],
        specs,
        tuple(_entry(function, where, part, specs) for where, part in entries),
        tuple(_skip(function, where, part) for where, part in skips),
        tuple(_quarantine(function, where, part, specs) for where, part in quarantines),
        numbers["epoch"],
        numbers["step"],
    )
    _check_order(function, argument, journal)
    return journal


def _entry(function: str, argument: str, given: JSON, specs: tuple[OrderSpec, ...]) -> Entry:
    entry = Entry(**check_fields(function, argument, given, _ENTRY))
    if entry.order >= len(specs):
        rule = f"of one of {len(specs)} orders"
        raise validation.value_error(function, f"{argument}['order']", rule, entry.order)
    if entry.step_size > 2**62:
        rule = "of steps of at most 2**62 samples"
        raise validation.value_error(function, argument, rule, entry.step_size)
    n = specs[entry.order].n if entry.order != STOPPED else -1
    if 0 <= n < entry.position:
        rule = f"in [0, {n}], the positions of the order"
        raise validation.value_error(function, f"{argument}['position']", rule, entry.position)
    return entry


def _skip(function: str, argument: str, given: JSON) -> Skip:
    skip = Skip(
        **check_fields(
            function, argument, given, dict(zip(Skip._fields, (_EPOCH, _STEP, _STEP), strict=True))
        )
    )
    if skip.last < skip.first:
        raise validation.value_error(function, f"{argument}['last']", "at least first", skip.last)
    return skip


def _quarantine(
    function: str, argument: str, given: JSON, specs: tuple[OrderSpec, ...]
) -> Quarantine:
    bounds = {"epoch": _EPOCH, "step": _STEP}
    numbers = check_fields(function, argument, given, bounds, (), ("samples",))
    where = f"{argument}['samples']"
    most = max((spec.size for spec in specs), default=0) - 1
    samples = tuple(
        validation.check_int(function, f"{where}[{i}]", sample, 0, most)
        for i, sample in enumerate(check_list(function, where, given["samples"]))
    )
    if not samples or list(samples) != sorted(set(samples)):
        raise validation.value_error(function, where, "different samples, sorted", samples)
    return Quarantine(numbers["epoch"], numbers["step"], samples)


def _check_order(function: str, argument: str, journal: Journal) -> None:
    """Raise ValueError unless what a journal has is in the order of time."""
    entries: list[Point] = [entry.point for entry in journal.entries]
    if any(a >= b for a, b in itertools.pairwise(entries)):
        raise validation.value_error(function, f"{argument}['entries']", "in order", entries)
    begins: list[Point] = [q.point for q in journal.quarantines]
    if begins != sorted(begins):
        raise validation.value_error(function, f"{argument}['quarantines']", "in order", begins)
    skips = journal.skips
    ranges = sorted(skips)
    if any(a.epoch == b.epoch and a.last >= b.first for a, b in itertools.pairwise(ranges)):
        raise validation.value_error(function, f"{argument}['skips']", "ranges apart", list(skips))
