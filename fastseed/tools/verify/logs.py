"""Read the losses of a run from JSON lines, CSV, or lines of any form."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ..._utils.validation import describe
from .options import compile_pattern
from .result import Curve, Floats, Steps

STEP_KEYS = ("step", "global_step", "iteration", "iter")
"""Names of steps; the first one that the first row has is used, after ``epoch`` if it has that."""

_BATCH = 1 << 14  # bytes of lines that are read together; fewer objects are alive in small batches
_CSV_ROWS = 128  # that are read together
_DLLL = "DLLL {"  # before each row of NVIDIA's DLLogger

_Row = dict[str, Any]
_Batch = list[_Row] | dict[str, tuple[Any, ...]]  # rows, or the columns of several rows


def read_curve(
    path: str | os.PathLike[str],
    *,
    value: str = "loss",
    step: str | None = None,
    pattern: str | None = None,
) -> Curve:
    r"""Return the values in a log by step; the arguments are those of ``Options``.

    With ``pattern`` the log is lines of text; ``.csv`` and ``.tsv`` are CSV; other files hold JSON
    objects, one a line, which may be among other output.

    Raises:
        OSError: ``path`` cannot be read.
        ValueError: the log has no such values, or one that is not a number.

    Examples:
        >>> import tempfile, os
        >>> from fastseed.tools.verify.logs import read_curve
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "log.jsonl")
        ...     with open(path, "w") as file:
        ...         _ = file.write('{"step": 0, "loss": 0.5}\n{"step": 1, "loss": 0.25}\n')
        ...     read_curve(path).steps.tolist()
        [0, 1]
    """
    keys = None if step is None else tuple(part.strip() for part in step.split(","))
    log = _Log(os.fspath(path))
    if pattern is not None:
        search = compile_pattern(pattern)
        keys = tuple(name for name in search.groupindex if name.startswith("step"))
        return _collect(log, log.matches(search), "value", keys)
    if log.path.lower().endswith((".csv", ".tsv")):
        return _collect(log, log.csv_columns(), value, keys)
    return _collect(log, log.json_rows(), value, keys)


class _Log:
    """A file, read in batches of rows, and the remarks about it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.notes: list[str] = []

    def _lines(self, *, complete: bool) -> Iterator[list[str]]:
        """Yield batches of lines; ``complete`` leaves out a last line without its end."""
        with open(self.path, encoding="utf-8-sig", errors="replace") as file:
            while lines := file.readlines(_BATCH):
                if complete and lines[-1][-1] != "\n":  # its last number may lack digits
                    lines.pop()
                    self.notes.append("the last line is cut off and was left out")
                yield lines

    def json_rows(self) -> Iterator[list[_Row]]:
        """Yield the JSON objects; lines that do not start like one are ordinary output."""
        broken = 0
        for lines in self._lines(complete=False):
            texts = [line for line in lines if line[0] == "{"]
            texts += [line[line.index(_DLLL) + 5 :] for line in lines if _DLLL in line]
            rows = _decode(texts)
            broken += len(texts) - len(rows)
            yield [row for row in map(_unwrap, rows) if row]
        if broken:
            self.notes.append(f"{broken} lines are not JSON and were left out")

    def csv_columns(self) -> Iterator[_Batch]:
        """Yield the columns below a header; rows of another length are left out."""
        lines = chain.from_iterable(self._lines(complete=True))
        first = next((line for line in lines if line.strip()), "")
        delimiter = max(",\t;|", key=first.count)
        header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        try:
            while rows := list(islice(reader, _CSV_ROWS)):
                rows = [row for row in rows if len(row) == len(header) and row != header]
                yield dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else {}
        except csv.Error as error:
            _refuse(f"{self.path!r} must be CSV, got an error: {error}")

    def matches(self, pattern: re.Pattern[str]) -> Iterator[list[_Row]]:
        """Yield the groups of the first match in each line."""
        for lines in self._lines(complete=True):
            yield [found.groupdict() for line in lines if (found := pattern.search(line))]


def _decode(texts: list[str]) -> list[_Row]:
    """Decode all lines at once, which takes half the time; one by one if a line is not JSON."""
    try:
        rows: list[_Row] = json.loads(f"[{','.join(texts)}]")
        if len(rows) == len(texts):
            return rows
    except (ValueError, RecursionError):
        pass
    rows = []
    for text in texts:
        try:
            rows.append(json.loads(text))
        except (ValueError, RecursionError):
            continue
    return rows


def _unwrap(row: _Row) -> _Row | None:
    """Return the data of a row of DLLogger; None if it has no step, as its summary of the run."""
    if row.get("type") != "LOG" or not isinstance(row.get("data"), dict):
        return row
    step = row.get("step")
    is_step = step != [] and isinstance(step, (int, list))
    return {**row["data"], "step": step} if is_step else None


def _collect(log: _Log, batches: Iterator[_Batch], value: str, keys: Sequence[str] | None) -> Curve:
    """Return the curve of ``batches``; ``keys`` make up the step, () for steps that are counted."""
    values: list[Floats] = []
    steps: list[Steps] = []
    names: _Row = {}
    unnamed = 0
    for batch in batches:
        names.update(batch if isinstance(batch, dict) else (batch or [{}])[0])
        (column,) = found = _complete([_column(batch, value)])
        if keys is None and column:
            keys = tuple(_step_keys(batch, value))
        if keys:
            found = _complete([_column(batch, key) for key in (value, *keys)])
            unnamed += len(column) - len(found[0])
        if found[0]:
            values.append(_numbers(log.path, value, found[0]))
            steps += [_names(found[1:])] if keys else []
    if not values:
        has = f"; its rows have {', '.join(map(describe, islice(names, 20)))}" if names else ""
        step = f" with a step ({', '.join(keys or ())})" if unnamed else ""
        _refuse(f"{log.path!r} must hold values of {value!r}{step}, got none{has}")
    curve = np.concatenate(values)
    named = np.concatenate(steps) if keys else np.arange(len(curve))
    with contextlib.suppress(ValueError, OverflowError):  # of text that is no integer
        named = named.astype(np.int64, copy=False)
    last = _last_of_each(named)
    if unnamed:
        log.notes.append(f"{unnamed} values without a step were left out")
    if len(last) < len(curve):
        log.notes.append(f"{len(curve) - len(last)} steps were repeated; the last value counts")
        named, curve = named[last], curve[last]
    return Curve(named, curve, bool(keys), _digits(curve), tuple(log.notes))


def _column(batch: _Batch, key: str) -> Sequence[Any]:
    """Return one column, None where a row lacks it; dots in ``key`` lead into objects."""
    if isinstance(batch, dict):
        return batch.get(key, ())
    found = [row.get(key) for row in batch]
    if "." in key:
        first, _, rest = key.partition(".")
        inner = [one if isinstance(one := row.get(first), dict) else {} for row in batch]
        found = [b if a is None else a for a, b in zip(found, _column(inner, rest), strict=True)]
    return found


def _complete(columns: list[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return the columns without rows that lack one of them."""
    if not all(columns) or not any(None in column or "" in column for column in columns):
        return columns if all(columns) else [() for _ in columns]
    rows = [row for row in zip(*columns, strict=True) if None not in row and "" not in row]
    return list(zip(*rows, strict=True)) if rows else [() for _ in columns]


def _step_keys(batch: _Batch, value: str) -> Iterator[str]:
    """Yield the keys that make up the step, by the first row that has a value."""
    columns = {key: _column(batch, key) for key in (value, "epoch", *STEP_KEYS)}
    first = next(i for i, one in enumerate(columns[value]) if one not in (None, ""))
    has = [key for key, column in columns.items() if column and column[first] not in (None, "")]
    yield from ["epoch"] if "epoch" in has else []
    yield from [key for key in STEP_KEYS if key in has][:1]


def _names(columns: list[Sequence[Any]]) -> Steps:
    """Return the names of steps: integers, or text with ``/`` between the parts."""
    if len(columns) == 1 and set(map(type, columns[0])) == {int}:
        return np.array(columns[0], np.int64)
    texts = [_texts(column) for column in columns]
    return np.array(texts[0] if len(texts) == 1 else list(map("/".join, zip(*texts, strict=True))))


def _texts(column: Sequence[Any]) -> list[str]:
    if list in set(map(type, column)):
        return ["/".join(_texts(one)) if isinstance(one, list) else str(one) for one in column]
    return [text.removesuffix(".0") for text in map(str, column)]  # 3.0 is step 3


def _last_of_each(steps: Steps) -> npt.NDArray[np.int64]:
    """Return the indices of the last of each step, in their order."""
    if steps.dtype.kind == "i" and (np.diff(steps) > 0).all():
        return np.arange(len(steps))
    last = dict(zip(steps.tolist(), range(len(steps)), strict=True))
    return np.sort(np.fromiter(last.values(), np.int64, len(last)))


def _numbers(path: str, name: str, column: Sequence[Any]) -> Floats:
    numbers: list[float] = []
    try:
        numbers.extend(map(float, column))
    except (TypeError, ValueError, OverflowError):
        wrong = describe(column[len(numbers)])
        _refuse(f"{name!r} in {path!r} must be a number, got {wrong}")
    return np.array(numbers)


def _digits(values: Floats) -> int:
    """Return the largest number of significant digits of the first finite values."""
    finite = values[np.isfinite(values)][:100].tolist()
    mantissas = (repr(value).partition("e")[0].strip("-").replace(".", "") for value in finite)
    return max((len(text.strip("0")) for text in mantissas), default=17) or 1


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"fastseed.tools.verify: {message}")
