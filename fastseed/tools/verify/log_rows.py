"""What the readers of logs share: lines of bounded length, numbers, names of steps, the result."""

from __future__ import annotations

import difflib
import os
import re
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np

from ..._utils.validation import describe
from .result import Curve

MAX_LINE = 2**20  # characters
MAX_VALUES = 10_000_000
DOUBLE = 17  # significant digits that tell all doubles
STEP_KEYS = ("step", "global_step", "iteration", "iter", "epoch")
"""What logs call their steps; the first that a log has is taken."""

_SHOWN = 40  # keys that are remembered to be named in an error
_WHOLE = re.compile(r"([+-]?)0*([0-9]+)(?:\.0*)?")
_FOREIGN = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x1f\x8b": "gzip", b"PK": "a ZIP file"}


class Number(str):
    """The text of a JSON number, told apart from the text of a string."""

    __slots__ = ()


# ---------------------------------------------------------------- lines


class Lines:
    """A text file's lines, of which none is held that is longer than :data:`MAX_LINE`.

    Ends of lines are those of all systems, and the carriage returns of progress bars. What is no
    UTF-8 is replaced.

    Attributes:
        number: of the line that was given last, from 1.
        ended: whether it had an end: what a process was killed in has none.
        long: how many were left out for their length.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = self.long = 0
        self.ended = True

    def __iter__(self) -> Iterator[str]:
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        handle = os.open(self.path, flags)  # without waiting for who writes to a pipe
        with open(handle, encoding="utf-8-sig", errors="replace", newline=None) as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                refuse(f"path must be a regular file or a folder, got {self.path!r}")
            while line := file.readline(MAX_LINE + 1):
                self.number += 1
                if len(line) > MAX_LINE and line[-1] != "\n":
                    self.long += 1
                    while (rest := file.readline(MAX_LINE)) and rest[-1] != "\n":
                        pass
                    continue
                self.ended = line[-1] == "\n"
                yield line


def foreign(path: str) -> str:
    """Says of a file that is no UTF-8 text what it looks like; nothing otherwise."""
    with open(path, "rb") as file:
        start = file.read(2)
    kind = _FOREIGN.get(start)
    return f" (it looks like {kind}: UTF-8 text is read)" if kind else ""


# ---------------------------------------------------------------- values


def refuse(text: str) -> NoReturn:
    """ValueError in the form that errors have."""
    raise ValueError(f"fastseed.tools.verify: {text}")


def digits(text: str) -> int:
    """The significant digits that a decimal number is written with: 3 of ``-0.0120e5``."""
    mantissa = text.strip().lower().partition("e")[0].lstrip("+-").replace(".", "", 1).lstrip("0")
    return len(mantissa) if mantissa.isdecimal() else 0  # none of nan and inf


def label(found: Any) -> str | None:
    """What a step is called: whole numbers without a point, lists joined by ``/``.

    None where it is no step: missing, empty, not finite, true or false, an object.
    """
    if isinstance(found, str):
        text = str(found).strip()
        if text.isascii() and text.isdigit() and (text[0] != "0" or text == "0"):
            return text
        return _spelled(text) if text else None
    if isinstance(found, list):
        parts = [label(part) if isinstance(part, str) else None for part in found]
        return "/".join(part for part in parts if part) if parts and all(parts) else None
    return None


def _spelled(text: str) -> str:
    whole = _WHOLE.fullmatch(text)
    if whole:
        sign = "-" if whole[1] == "-" and whole[2] != "0" else ""
        return sign + whole[2]
    try:
        number = float(text) if text.isascii() else 0.5
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else text


class Rows:
    """The values of a log as they are read, before it is known what their steps are called.

    Args:
        path: the file.
        value: what the value is called, for errors.
        keys: what each row's steps are made of; None takes one of :data:`STEP_KEYS`, and the epoch
            with it where the steps of each epoch are counted anew. Without any, steps are counted.
    """

    def __init__(self, path: str, value: str, keys: tuple[str, ...] | None) -> None:
        self.path, self.value, self.keys = path, value, keys
        self.values = array("d")
        self.digits = 0
        self.count = 0  # of rows, with a value or without
        self.seen: dict[str, None] = {}
        self.notes: list[str] = []
        self.columns: dict[str, list[str | None]] = {}
        self.step_keys = STEP_KEYS if keys is None else keys

    def add(self, number: int, found: Any, get: Callable[[str], Any]) -> None:
        """Take a value, of which ``get(key)`` knows the steps. ``number`` is that of the line."""
        size = len(self.values)
        if size >= MAX_VALUES:
            refuse(f"{self.path} must hold at most {MAX_VALUES} values, got more")
        if isinstance(found, str):
            try:
                value = float(found if found.isascii() and "_" not in found else "no number")
            except ValueError:
                self._not_a_number(number, found)
            if self.digits < min(len(found), DOUBLE):
                self.digits = max(self.digits, min(digits(found), DOUBLE))
        elif isinstance(found, float):  # JSON's NaN and Infinity, TensorBoard's
            value = found
        else:
            self._not_a_number(number, found)
        for key in self.step_keys:
            step = get(key)
            if step is not None and (step := label(step)) is not None:
                column = self.columns.get(key)
                if column is None:
                    column = self.columns[key] = []
                if len(column) < size:
                    column.extend([None] * (size - len(column)))
                column.append(step)
        self.values.append(value)

    def _not_a_number(self, number: int, found: Any) -> NoReturn:
        where = f"{self.path}:{number}"
        refuse(f"{where}: {self.value!r} must be a number, got {describe(found)}")

    def see(self, keys: Iterable[str]) -> None:
        """Remember what a row has, for the error that says what there is instead."""
        if len(self.seen) < _SHOWN:
            self.seen.update(dict.fromkeys(keys))

    def note(self, count: int, one: str, many: str) -> None:
        """Note something that was met ``count`` times; nothing of zero. ``many`` has a ``{}``."""
        if count:
            self.notes.append(one if count == 1 else many.format(count))

    # ------------------------------------------------------------ the result

    def restarts(self) -> bool:
        """Whether a step stands in two epochs, so that only both together tell it."""
        keys = self._chosen()
        if self.keys is not None or not keys or keys[0] == "epoch" or "epoch" not in self.columns:
            return False
        epochs: dict[str, str] = {}
        for step, epoch in zip(self.columns[keys[0]], self.columns["epoch"], strict=False):
            if step is not None and epoch is not None and epochs.setdefault(step, epoch) != epoch:
                return True
        return False

    def curve(self, *, with_epoch: bool) -> Curve:
        """The values by their steps; ``with_epoch`` prefixes the epoch where rows have one."""
        if not self.values:
            self._nothing()
        keys = self._chosen()
        if with_epoch and self.keys is None and keys[:1] != ("epoch",) and "epoch" in self.columns:
            keys = ("epoch", *keys)
        size = len(self.values)
        if not keys:
            steps: Iterable[str | None] = map(str, range(size))
        else:
            columns = [self._column(key) for key in keys]
            steps = columns[0] if len(keys) == 1 else map(_joined, *columns)
        return self._unique(steps, bool(keys))

    def _chosen(self) -> tuple[str, ...]:
        if self.keys is not None:
            return self.keys
        return next(((key,) for key in STEP_KEYS if key in self.columns), ())

    def _column(self, key: str) -> list[str | None]:
        column = self.columns.get(key)
        if column is None:
            named = self._instead(key)
            refuse(f"step must be what rows with {self.value!r} have, got {key!r}{named}")
        return column + [None] * (len(self.values) - len(column))

    def _unique(self, steps: Iterable[str | None], labelled: bool) -> Curve:
        """Of a step that is given twice the last value, in the place of the first."""
        places: dict[str, int] = {}
        values = array("d")
        unnamed = again = 0
        for step, value in zip(steps, self.values, strict=True):
            if step is None:
                unnamed += 1
            elif step in places:
                again += 1
                values[places[step]] = value
            else:
                places[step] = len(values)
                values.append(value)
        if not places:
            refuse(f"{self.path}: no value's row has all of the step's keys {self._chosen()}")
        self.note(unnamed, "1 value has no step; left out", "{} values have no step; left out")
        text = "given again; the last one counts"
        self.note(again, f"1 step was {text}", f"{{}} steps were {text}")
        found = np.frombuffer(values, dtype=np.float64).copy()
        return Curve(tuple(places), found, labelled, max(self.digits, 1), tuple(self.notes))

    def _nothing(self) -> NoReturn:
        rows = f"{self.count} rows" if self.count != 1 else "1 row"
        notes = f"; {'; '.join(self.notes)}" if self.notes else ""
        if not os.path.isdir(self.path):
            notes += foreign(self.path)
        if not self.count:
            refuse(f"{self.path} must hold values of {self.value!r}, got no rows at all{notes}")
        found = f"none in {rows}{self._instead(self.value)}"
        refuse(f"{self.path} must hold values of {self.value!r}, got {found}{notes}")

    def _instead(self, key: str) -> str:
        """`` of 'a', 'b' (did you mean 'b'?)``: what there is instead of ``key``."""
        others = [name for name in self.seen if name != key]
        if not others:
            return ""
        parts = [name for name in others if key.lower() in name.lower()]
        near = parts or difflib.get_close_matches(key, others, 1, 0.6)
        shown = ", ".join(describe(name) for name in others[:20])
        more = ", …" if len(others) > 20 else ""
        hint = f" (did you mean {describe(min(near, key=len))}?)" if near else ""
        return f"; there are {shown}{more}{hint}"


def _joined(*parts: str | None) -> str | None:
    return "/".join(part for part in parts if part is not None) if None not in parts else None
