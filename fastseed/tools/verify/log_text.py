"""Readers of text: JSON lines, DLLogger's lines, CSV, whatever a pattern finds."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from ..._utils.validation import describe
from .log_rows import Lines, Number, Rows, refuse

DLLL = re.compile(r"(?<![\w\"'\\])DLLL\s+(?=\{)")
"""Where one of DLLogger's objects begins; ranks' names and progress bars may stand before it."""

_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number)
_DELIMITERS = ",\t;|"
_DEPTH = 3  # of the keys that errors name


def decode(line: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at ``start``, and where it ends; numbers are :class:`Number`."""
    return _DECODER.raw_decode(line, start)


def is_object(line: str) -> bool:
    """Whether a line is a JSON object."""
    text = line.strip()
    if not text.startswith("{"):
        return False
    try:
        return decode(text)[1] == len(text)
    except (ValueError, RecursionError):
        return False


def _getter(key: str) -> Callable[[dict[str, Any]], Any]:
    """Finds a key in a row: as it is, or with its dots as the way into objects."""
    if "." not in key:
        return lambda row: row.get(key)
    parts = key.split(".")

    def get(row: dict[str, Any]) -> Any:
        if key in row:
            return row[key]
        found: Any = row
        for part in parts:
            if not isinstance(found, dict):
                return None
            found = found.get(part)
        return found

    return get


def _paths(row: dict[str, Any], depth: int = _DEPTH) -> Iterator[str]:
    """The dotted keys of a row."""
    for key, found in row.items():
        if isinstance(found, dict) and depth > 1:
            for path in _paths(found, depth - 1):
                yield f"{key}.{path}"
        else:
            yield key


def _close(rows: Rows, lines: Lines, *, half: bool, broken: int = 0, first: int = 0) -> Rows:
    """Note what was left out."""
    text = "longer than 1 MiB; left out"
    rows.note(lines.long, f"1 line is {text}", f"{{}} lines are {text}")
    text = f"no JSON and left out (line {first})"
    rows.note(broken, f"1 line is {text}", f"{{}} lines are {text[:-1]} is the first)")
    rows.note(half, "the last line is cut off; left out", "")
    return rows


# ---------------------------------------------------------------- JSON


def read_jsonl(path: str, value: str, keys: tuple[str, ...] | None) -> Rows:
    """One object a line. Lines that begin none are ordinary output, and not looked at."""
    rows, lines, find = Rows(path, value, keys), Lines(path), _getter(value)
    getters = {key: _getter(key) for key in rows.step_keys}
    dotted = any("." in key for key in getters)
    broken, first, half = 0, 0, False
    for line in lines:
        text = line.strip()
        if not text.startswith("{"):
            continue
        try:
            row, end = decode(text)
        except RecursionError:
            refuse(f"{path}:{lines.number}: a line must not nest so deeply")
        except ValueError:
            end = -1
        if end < len(text):  # also of two objects in a line
            half = not lines.ended
            broken, first = broken + (not half), first or lines.number
            continue
        rows.count += 1
        found = find(row)
        if found is None:
            rows.see(_paths(row))
            continue
        if rows.count < 100:
            rows.see(_paths(row))
        if dotted:
            rows.add(lines.number, found, lambda key, row=row: getters[key](row))  # type: ignore[misc]
        else:
            rows.add(lines.number, found, row.get)
    return _close(rows, lines, half=half, broken=broken, first=first)


def read_dlll(path: str, value: str) -> Rows:
    """DLLogger's JSON stream (https://github.com/NVIDIA/dllogger), also amid other output."""
    rows, lines, find = Rows(path, value, ("step",)), Lines(path), _getter(value)
    broken, first, half = 0, 0, False
    for line in lines:
        start = DLLL.search(line) if "DLLL" in line else None
        while start:
            try:
                row, end = decode(line, start.end())
            except RecursionError:
                refuse(f"{path}:{lines.number}: a line must not nest so deeply")
            except ValueError:
                half = not lines.ended
                broken, first = broken + (not half), first or lines.number
                break
            start = DLLL.search(line, end)
            _take_dlll(rows, lines.number, row, find)
    return _close(rows, lines, half=half, broken=broken, first=first)


def _take_dlll(
    rows: Rows, number: int, row: dict[str, Any], find: Callable[[dict[str, Any]], Any]
) -> None:
    step, data = row.get("step"), row.get("data")
    if row.get("type") != "LOG" or not isinstance(data, dict):
        return
    if not isinstance(step, (Number, list)) or step == []:
        return  # "PARAMETER", and the summary of the whole run
    rows.count += 1
    rows.see(_paths(data))
    found = find(data)
    if found is not None:
        rows.add(number, found, lambda _: step)


# ---------------------------------------------------------------- CSV


def read_csv(path: str, value: str, keys: tuple[str, ...] | None) -> Rows:
    """A header, and rows of which those with an empty value are left out."""
    rows, lines = Rows(path, value, keys), Lines(path)
    text = iter(lines)
    top = next((line for line in text if line.strip()), "")
    delimiter = max(_DELIMITERS, key=top.count)
    try:
        header = [name.strip() for name in next(csv.reader([top], delimiter=delimiter), [])]
        rows.see(header)
        at = _columns(path, header, (value, *rows.step_keys))
        place = at.get(value)
        half, headers, last = False, 0, -1
        for cells in csv.reader(text, delimiter=delimiter):
            if not lines.ended and (len(cells) < len(header) or len(cells) - 1 in at.values()):
                half = True  # its last cell may lack digits
                continue
            if not cells:
                continue
            rows.count += 1
            last = len(cells)
            if place is None or last <= place or not (found := cells[place].strip()):
                continue
            if found == value and [cell.strip() for cell in cells] == header:
                headers += 1  # of a run that was resumed into its log
                continue
            rows.add(lines.number, found, lambda key, cells=cells: _cell(cells, at.get(key)))  # type: ignore[misc]
    except csv.Error as error:
        refuse(f"{path}:{lines.number}: must be CSV, got an error ({error})")
    rows.note(headers, "the header stands 1 more time", "the header stands {} more times")
    return _close(rows, lines, half=half)


def _columns(path: str, header: list[str], names: tuple[str, ...]) -> dict[str, int]:
    """Where the columns are that are read."""
    for name in names:
        if header.count(name) > 1:
            refuse(f"{path}: a column must be there once, got {header.count(name)} of {name!r}")
    return {name: header.index(name) for name in names if name in header}


def _cell(cells: list[str], place: int | None) -> str | None:
    return cells[place] if place is not None and place < len(cells) else None


# ---------------------------------------------------------------- patterns


def compiled(pattern: str) -> tuple[re.Pattern[str], int, tuple[int, ...]]:
    """A pattern, its group of the value and those of the step, in their order."""
    try:
        found = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        refuse(f"pattern must be a regular expression, got {describe(pattern)} ({error})")
    steps = [n for name, n in found.groupindex.items() if name.startswith("step")]
    value = found.groupindex.get("value", 1 if found.groups == 1 and not steps else 0)
    if not value:
        refuse(
            "pattern must have a group named 'value', as in (?P<value>[0-9.]+), or no other than "
            f"its one, got {describe(pattern)}"
        )
    return found, value, tuple(sorted(steps))


def read_regex(path: str, pattern: str) -> Rows:
    """What a pattern finds first in each line. Its time is the pattern's own affair."""
    search, value, steps = compiled(pattern)
    rows, lines = Rows(path, "value", ("step",) if steps else ()), Lines(path)
    half = False
    for line in lines:
        rows.count += 1
        text = line.rstrip("\n")
        found = search.search(text)
        if found is None or found[value] is None:
            continue
        if not lines.ended and len(text) in map(found.end, (value, *steps)):
            half = True  # may lack digits
            continue
        parts = [Number(part) for part in found.group(*steps, value)[:-1] if part] if steps else []
        whole = parts if len(parts) == len(steps) else []
        rows.add(lines.number, found[value].strip(), lambda _, whole=whole: whole)  # type: ignore[misc]
    if not rows.values and rows.count and not half:
        rows.notes.append(f"no line fits {describe(pattern)}")
    return _close(rows, lines, half=half)


def suggest(line: str, value: str) -> str | None:
    """A pattern for lines like this one, if it says the value in words: ``step 12 loss 0.3456``."""
    words = rf"(\b[\w/.]*{re.escape(value)})\W*?{_NUMBER}"
    found = re.search(words, line[:_SHOWN], re.IGNORECASE)
    if found is None:
        return None
    steps = [
        (one.start(), re.escape(one[1]), name)
        for name, words in _STEPS.items()
        if (one := re.search(rf"\b({words})\W*?\d+", line[: found.start()], re.IGNORECASE))
    ]
    if len(steps) == 1:
        steps = [(*steps[0][:2], "step")]
    parts = [rf"{word}\W*?(?P<{name}>\d+)" for _, word, name in sorted(steps)]
    pattern = ".*?".join([*parts, rf"{re.escape(found[1])}\W*?(?P<value>{_NUMBER})"])
    return pattern if re.search(pattern, line) else None


_SHOWN = 1000  # of a line
_NUMBER = r"[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)"
_STEPS = {"step_epoch": "epoch", "step": "global_step|step|iteration|iter|batch"}
