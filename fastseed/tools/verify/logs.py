"""Read the losses of a run from JSON lines, DLLogger's lines, CSV, or lines of any form.

Logs are read line by line, once. A value that is not a number is an error that names its line; the
incomplete last line of a killed process is left out and noted.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn

import numpy as np

from ..._utils.validation import describe
from .result import Curve

FORMATS = ("jsonl", "dlll", "csv", "regex")
STEP_KEYS = ("step", "global_step", "iteration", "iter")
"""Names of steps; the first one that the first row has is used, after ``epoch`` if it has that."""

_DLLL = re.compile(r"(?<![\w\"'\\])DLLL\s+(?=\{)")
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv"}
_DETECT_LINES = 10_000
_BATCH = 256  # lines of JSON that are decoded together
_SAMPLE = 100  # rows whose names are kept for error messages, values whose digits are counted
_decode = json.JSONDecoder().raw_decode

_Rows = Iterator[tuple[int, Any, Mapping[str, Any]]]  # line, value, and the row with its step


def read_curve(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    value: str = "loss",
    step: str | None = None,
    pattern: str | None = None,
) -> Curve:
    r"""Return the values in a log by step; the arguments are those of :class:`Options`.

    Raises:
        OSError: ``path`` cannot be read.
        ValueError: the log has no such values, or one that is not a number.

    Example:
        >>> import tempfile, os
        >>> from fastseed.tools.verify.logs import read_curve
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "log.jsonl")
        ...     with open(path, "w") as file:
        ...         _ = file.write('{"step": 0, "loss": 0.5}\n{"step": 1, "loss": 0.25}\n')
        ...     read_curve(path).steps
        ('0', '1')
    """
    log = _Log(os.fspath(path))
    format = format or ("regex" if pattern is not None else _detect(log.path))
    keys = None if step is None else tuple(part.strip() for part in step.split(","))
    if format == "jsonl":
        rows = _json_rows(log, value)
    elif format == "csv":
        rows = _csv_rows(log, value, keys)
    elif format == "dlll":
        rows, keys = _dlll_rows(log, value), ("step",)
    else:
        search, groups = compile_pattern(pattern or "")
        rows, keys = _pattern_rows(log, search, groups), groups
    try:
        return _collect(log, rows, keys, value)
    except csv.Error as error:
        _refuse(f"{log.path}:{log.number} must be CSV, got an error: {error}")


class _Log:
    """The lines of a file, and what its reader has noticed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = 0
        self.ended = True  # False for a last line without its end
        self.cut = False  # the last line was left out
        self.broken: list[int] = []
        self.rows = 0
        self.names: dict[str, None] = {}

    def __iter__(self) -> Iterator[str]:
        with open(self.path, encoding="utf-8-sig", errors="replace") as file:
            for self.number, line in enumerate(file, 1):
                self.ended = line[-1] == "\n"
                yield line

    def keep(self, row: Iterable[str]) -> None:
        """Count a row; remember its names if it is one of the first."""
        self.rows += 1
        if self.rows <= _SAMPLE:
            self.names.update(dict.fromkeys(row))

    def leave_out(self, number: int) -> None:
        """Leave a line out: it is cut off, or not of the format."""
        if self.ended or number < self.number:
            self.broken.append(number)
        else:
            self.cut = True

    def notes(self) -> list[str]:
        """Return what was left out."""
        found = []
        if self.broken:
            found.append(f"{len(self.broken)} lines are not JSON (first: line {self.broken[0]})")
        if self.cut:
            found.append("the last line is cut off and was left out")
        return found


# ---------------------------------------------------------------- formats


def _detect(path: str) -> str:
    """Return the format of a log from its name or its first lines."""
    named = _SUFFIXES.get(os.path.splitext(path)[1].lower())
    if named == "csv":
        return named
    objects = False
    for line in islice(_Log(path), _DETECT_LINES):
        if _DLLL.search(line):
            return "dlll"  # DLLogger's files are often called *.json
        objects = objects or _object(line.strip()) is not None
    if named or objects:
        return "jsonl"
    _refuse(
        f"format must be given for {path!r}: its name and first lines do not show it; one of "
        f"{', '.join(FORMATS)}, or a pattern such as 'loss (?P<value>\\S+)'"
    )


def _object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that is all of ``text``; None if it is anything else."""
    try:
        row, end = _decode(text)
    except (ValueError, RecursionError):
        return None
    return row if end == len(text) and isinstance(row, dict) else None


def _json_rows(log: _Log, value: str) -> _Rows:
    """One object a line; other lines are the run's ordinary output."""
    get = _getter(value)
    for number, row in _objects(log, value.rpartition(".")[2]):
        log.keep(row)
        found = get(row)
        if found is not None:
            yield number, found, row


def _objects(log: _Log, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a log; after the first rows only those in whose text ``name`` is."""
    written = json.dumps(name)[1:-1]
    batch: list[tuple[int, str]] = []
    for line in log:
        text = line.strip()
        if text[:1] == "{" and (log.rows < _SAMPLE or name in text or written in text):
            batch.append((log.number, text))
            if len(batch) == _BATCH:
                yield from _decoded(log, batch)
                batch.clear()
    yield from _decoded(log, batch)


def _decoded(log: _Log, batch: list[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Decode all lines at once, which takes half the time; one by one if a line is not JSON."""
    try:
        rows = json.loads(f"[{','.join(text for _, text in batch)}]")
    except (ValueError, RecursionError):
        rows = []
    if len(rows) == len(batch):
        yield from ((number, row) for (number, _), row in zip(batch, rows, strict=True))
        return
    for number, text in batch:
        row = _object(text)
        if row is None:
            log.leave_out(number)
        else:
            yield number, row


def _dlll_rows(log: _Log, value: str) -> _Rows:
    """DLLogger's JSON stream (https://github.com/NVIDIA/dllogger), among other output too."""
    get = _getter(value)
    for line in log:
        start = _DLLL.search(line) if "DLLL" in line else None
        while start:
            try:
                row, end = _decode(line, start.end())
            except (ValueError, RecursionError):
                log.leave_out(log.number)
                break
            start = _DLLL.search(line, end)
            step, data = row.get("step"), row.get("data")
            # Other rows are parameters, metadata, and the summary of the run, whose step is ().
            is_step = step != [] and isinstance(step, (int, list))
            if row.get("type") == "LOG" and isinstance(data, dict) and is_step:
                log.keep(data)
                found = get(data)
                if found is not None:
                    yield log.number, found, row


def _csv_rows(log: _Log, value: str, keys: tuple[str, ...] | None) -> _Rows:
    """A header and rows; those with an empty value are left out."""
    lines = iter(log)
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(",\t;|", key=first.count)
    header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    log.names.update(dict.fromkeys(header))
    wanted = (value, "epoch", *STEP_KEYS) if keys is None else (value, *keys)
    columns = [(name, header.index(name)) for name in wanted if name in header]
    if not columns or columns[0][0] != value:
        return
    where = columns[0][1]
    for cells in csv.reader(lines, delimiter=delimiter):
        if not log.ended:  # its last number may lack digits
            log.cut = True
        elif len(cells) == len(header) and cells[where].strip() not in ("", value):
            yield log.number, cells[where], {name: cells[i] for name, i in columns}


def compile_pattern(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return a pattern and the names of its groups that make up the step, in their order.

    Raises:
        ValueError: it is not a regular expression, or has no group ``value``.
    """
    try:
        found = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        _refuse(f"pattern must be a regular expression, got {describe(pattern)} ({error})")
    if "value" not in found.groupindex:
        _refuse(
            "pattern must have a group named 'value', as in 'loss (?P<value>\\S+)', "
            f"got {describe(pattern)}"
        )
    return found, tuple(name for name in found.groupindex if name.startswith("step"))


def _pattern_rows(log: _Log, pattern: re.Pattern[str], steps: tuple[str, ...]) -> _Rows:
    """The first match of ``pattern`` in each line."""
    for line in log:
        found = pattern.search(line)
        if found is None or found["value"] is None:
            continue
        if not log.ended:  # its last number may lack digits
            log.cut = True
        else:
            yield log.number, found["value"], found.groupdict() if steps else {}


# ---------------------------------------------------------------- values and steps


def _getter(key: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that gets a key from a row; dots in it lead into objects."""
    if "." not in key:
        return lambda row: row.get(key)

    def get(row: Any) -> Any:
        if key in row:
            return row[key]
        for part in key.split("."):
            row = row.get(part) if isinstance(row, dict) else None
        return row

    return get


def _collect(log: _Log, rows: _Rows, keys: tuple[str, ...] | None, value: str) -> Curve:
    """Return the curve of ``rows``; ``keys`` make up the step, () for steps that are counted."""
    values = array("d")
    steps: list[Any] = []  # names, None where a row has none
    getters = None if keys is None else [_getter(key) for key in keys]
    for number, found, row in rows:
        if getters is None:
            getters = [_getter(key) for key in _step_keys(row)]
        values.append(
            found if type(found) is float else _number(f"{log.path}:{number}", value, found)
        )
        if len(getters) == 1:
            steps.append(_label(getters[0](row)))
        elif getters:
            parts = [_label(get(row)) for get in getters]
            steps.append(None if None in parts else "/".join(parts))  # type: ignore[arg-type]
    if not values:
        _refuse(_nothing_found(log, value))
    notes = log.notes()
    if not getters:
        steps = [str(i) for i in range(len(values))]
    by_step = dict(zip(steps, values, strict=True))  # the last value of a repeated step
    unnamed = steps.count(None)
    by_step.pop(None, None)
    repeated = len(steps) - unnamed - len(by_step)
    if unnamed:
        notes.append(f"{unnamed} values without a step were left out")
    if repeated:
        notes.append(f"{repeated} steps were repeated; the last value counts")
    if not by_step:
        _refuse(f"step must be what rows of {log.path!r} have, got {', '.join(keys or ())}")
    found = np.fromiter(by_step.values(), np.float64, len(by_step))
    return Curve(tuple(by_step), found, bool(getters), _digits(found), tuple(notes))


def _nothing_found(log: _Log, value: str) -> str:
    names = ", ".join(map(describe, islice(log.names, 20)))
    instead = [f"it has {names}"] if names else []
    missing = f"{log.path!r} must hold values of {value!r}, got none"
    return "; ".join([missing, *instead, *log.notes()])


def _step_keys(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that make up the step, by the first row that has a value."""
    found = [key for key in STEP_KEYS if row.get(key) is not None][:1]
    return (*(["epoch"] if row.get("epoch") is not None else []), *found)


def _label(found: Any) -> str | None:
    """Return the name of a step: integers without a point, lists joined by ``/``."""
    if type(found) is int:
        return str(found)
    if isinstance(found, str):
        text = found.strip()
        try:
            return str(int(text))
        except ValueError:
            return text or None
    if isinstance(found, float):
        return str(int(found)) if found.is_integer() else repr(found)
    if isinstance(found, list) and found:
        parts = [_label(part) for part in found]
        return None if None in parts else "/".join(map(str, parts))
    return None


def _number(where: str, name: str, found: Any) -> float:
    if isinstance(found, (int, str)) and not isinstance(found, bool):
        try:
            return float(found)
        except (ValueError, OverflowError):
            pass
    _refuse(f"{where}: {name!r} must be a number, got {describe(found)}")


def _digits(values: np.ndarray) -> int:
    """Return the largest number of significant digits of the first finite values."""
    finite = islice((value for value in values.tolist() if math.isfinite(value)), _SAMPLE)
    mantissas = (repr(value).partition("e")[0].strip("-").replace(".", "") for value in finite)
    return max((len(text.strip("0")) for text in mantissas), default=17) or 1


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"fastseed.tools.verify: {message}")
