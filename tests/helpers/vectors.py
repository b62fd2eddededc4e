"""Reads the files of ``tests/vectors``. Strict: what it does not know is an error."""

import functools
import hashlib
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).resolve().parents[1] / "vectors"

# The columns of each kind: inputs, then outputs. d: decimal, w: word of 8 hex digits,
# q: 64 bits of 16 hex digits, s: text.
KINDS = {
    "block": ("qwwww", "wwww"),
    "scope": ("dddd", "qq"),
    "name": ("s", "wwww"),
    "level2": ("dddds", "qq"),
    "stream": ("ddddsddd", "qq"),
    "sample": ("ddddsdd", "qq"),
    "narrow": ("ddddsdddd", "d"),
    "mt19937": ("qq", "w" * 624),
    "seeds": ("ddddsdddd", "s"),
}
HEX_DIGITS = {"w": 8, "q": 16}


class Row(NamedTuple):
    """One known answer."""

    kind: str
    inputs: tuple
    outputs: tuple
    text: str


def _value(column: str, text: str) -> int | str:
    if column == "s":
        return text
    if column == "d":
        value, canonical = int(text), str(int(text))
    else:
        value = int(text, 16)
        canonical = f"{value:0{HEX_DIGITS[column]}x}"
    if text != canonical:
        raise ValueError(f"vectors: a number must be written {canonical}, got {text}")
    return value


def parse_row(text: str) -> Row:
    """One line; ValueError for an unknown kind or a line of another shape."""
    kind, *fields = text.split(" ")
    if kind not in KINDS:
        raise ValueError(f"vectors: unknown kind of row {kind!r}")
    inputs, outputs = KINDS[kind]
    values = tuple(map(_value, inputs + outputs, fields))
    if len(fields) != len(inputs) + len(outputs):
        raise ValueError(f"vectors: wrong number of columns in {text[:120]!r}")
    return Row(kind, values[: len(inputs)], values[len(inputs) :], text)


@functools.cache
def read_rows() -> tuple[Row, ...]:
    """Every row of the file, in order."""
    lines = (DATA / "vectors.txt").read_text("utf-8").splitlines()
    return tuple(parse_row(line) for line in lines if line and not line.startswith("#"))


def rows_of(kind: str) -> list[Row]:
    """The rows of one kind, which has to be there."""
    found = [row for row in read_rows() if row.kind == kind]
    if kind not in KINDS or not found:
        raise ValueError(f"vectors: no row of kind {kind!r}")
    return found


def digest(texts: list[str]) -> str:
    """Return the digest that ``vectors.sha256`` has for these rows."""
    return hashlib.sha256("".join(t + "\n" for t in texts).encode("utf-8")).hexdigest()


def frozen(file: str = "vectors") -> list[tuple[int, str]]:
    """The releases of the file: how many rows, and the digest over them."""
    lines = (DATA / f"{file}.sha256").read_text("utf-8").splitlines()
    return [(int(count), value) for count, value in map(str.split, lines)]


def changed(texts: list[str], releases: list[tuple[int, str]]) -> list[int]:
    """The releases (by their row counts) whose rows are no longer what they were."""
    return [n for n, value in releases if len(texts) < n or digest(texts[:n]) != value]


@functools.cache
def data_lines(file: str) -> tuple[str, ...]:
    """Return the rows of ``<file>.txt``, as they are written."""
    lines = (DATA / f"{file}.txt").read_text("utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def fields_of(file: str, kind: str) -> list[list[str]]:
    """Return the fields of the rows of one kind, without its name."""
    return [line.split(" ")[1:] for line in data_lines(file) if line.startswith(f"{kind} ")]
