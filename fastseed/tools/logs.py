"""Logs of numbers by step (JSON lines, CSV, TensorBoard), and the first difference of two."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .._utils import validation

STEP_KEYS = ("step", "global_step", "iteration", "iter")
"""What the number of a step is called; ``epoch`` may stand beside it, or alone."""

_EVENTS = "events.out.tfevents."  # how TensorBoard's files begin
_SUFFIXES = (".jsonl", ".ndjson", ".csv")

Log = Mapping[str, Mapping[str, float]]
"""Numbers by step, "17" or "3/120" with an epoch, and by name; the last one of a step."""


class Difference(NamedTuple):
    first: str | None  # the first common step with a difference
    values: list[tuple[str, float, float]]  # by name at this step, of both logs
    differing: int  # steps, of the common ones
    compared: int
    notes: list[str]  # steps and names that only one log has


def is_log(path: Path) -> bool:
    return path.suffix in _SUFFIXES or bool(_events(path))


def read(function: str, argument: str, given: str) -> Log:
    """Return the numbers of a log; ValueError if it has none with a step, or is damaged."""
    path, found = Path(given), dict[str, dict[str, float]]()
    try:
        for row in _rows(path):
            numbers = {name: value for name, value in row.items() if _is_number(value)}
            if (step := step_of(numbers)) is not None:
                numbers = {k: v for k, v in numbers.items() if k not in (*STEP_KEYS, "epoch")}
                found.setdefault(step, {}).update(numbers)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"fastseed.{function}: {given!r} is damaged: {error}") from None
    if not any(found.values()):
        raise validation.value_error(
            function, argument, f"a log of numbers with one of {', '.join(STEP_KEYS)}", given
        )
    return found


def step_of(row: Mapping[str, Any]) -> str | None:
    steps = [key for key in STEP_KEYS if row.get(key) is not None][:1]
    parts = [row[key] for key in ("epoch", *steps) if row.get(key) is not None]
    return "/".join(str(part).removesuffix(".0") for part in parts) or None  # 3.0 is step 3


def compare(a: Log, b: Log) -> Difference:
    """Return the first step at which a number differs; ValueError if nothing is in common."""
    first: str | None = None
    at_first: list[tuple[str, float, float]] = []
    compared = differing = 0
    for step in (step for step in a if step in b):
        pairs = [(name, a[step][name], b[step][name]) for name in a[step] if name in b[step]]
        values = [pair for pair in pairs if not same(*pair[1:])]
        compared += bool(pairs)
        differing += bool(values)
        if values and first is None:
            first, at_first = step, values
    if not compared:
        raise ValueError("fastseed.diff: A and B must have a step and a name in common")
    notes = []
    for side, one, other in (("A", a, b), ("B", b, a)):
        if missing := [step for step in one if step not in other]:
            notes.append(f"{side} alone has {len(missing)} steps, the first is {missing[0]}")
        names = {name for values in one.values() for name in values}
        if alone := sorted(names - {name for values in other.values() for name in values}):
            notes.append(f"{side} alone has {', '.join(alone)}")
    return Difference(first, at_first, differing, compared, notes)


def same(a: float | None, b: float | None) -> bool:
    """Return whether the bits of two numbers are equal: all NaN are, None equals nothing."""
    if a is None or b is None:
        return False
    return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _events(path: Path) -> list[Path]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [file for file in files if file.name.startswith(_EVENTS)]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if events := _events(path):
        yield from _rows_of_events(events)
        return
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        if path.suffix == ".csv":
            for row in csv.DictReader(file):
                yield {name: _parsed(text) for name, text in row.items() if name}
            return
        for line in file:
            if line.lstrip().startswith("{"):  # others may stand between them
                yield json.loads(line)


def _parsed(text: object) -> object:
    try:
        return float(str(text))
    except ValueError:
        return None  # a word, or an empty cell


def _rows_of_events(files: list[Path]) -> Iterator[dict[str, Any]]:
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ImportError:
        text = "fastseed.diff: TensorBoard's files need the package: pip install tensorboard"
        raise ImportError(text) from None
    for file in files:
        events = event_accumulator.EventAccumulator(os.fspath(file), {"scalars": 0}).Reload()
        for name in events.Tags()["scalars"]:
            for event in events.Scalars(name):
                yield {"step": event.step, name: event.value}
