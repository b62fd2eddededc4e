"""Reads the files of ``tests/vectors``. Strict: what it does not know is an error."""

from __future__ import annotations

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


# ---------------------------------------------------------------- draws.txt

# Bits of a value of each dtype.
WIDTHS = {
    "bool": 8, "uint8": 8, "float16": 16, "bfloat16": 16, "int32": 32, "uint32": 32, "float32": 32,
    "int64": 64, "uint64": 64, "float64": 64,
}  # fmt: skip
# Parameters of each distribution. r: pattern of a real of the type of the computation, d: decimal.
PARAMETERS = {
    "bits": "", "uniform": "rrr", "normal": "rr", "exponential": "r", "bernoulli": "d",
    "randint": "dd", "trunc_normal": "rrrrrrrr",
}  # fmt: skip
FUNCTIONS = ("negative_log", "cos", "sin")


class Draw(NamedTuple):
    """One draw and its values, all reals as bit patterns."""

    distribution: str
    dtype: str
    lo: int
    hi: int
    position: int
    first: int
    parameters: tuple[int, ...]
    values: tuple[int, ...]
    text: str


class Real(NamedTuple):
    """One value of a function of a word."""

    function: str
    dtype: str
    word: int
    result: int
    text: str


def _pattern(text: str, width: int) -> int:
    value = int(text, 16)
    if text != f"{value:0{width // 4}x}":
        raise ValueError(f"draws: {width} bits must be {width // 4} hex digits, got {text}")
    return value


def _decimal(text: str) -> int:
    if text != str(int(text)):
        raise ValueError(f"draws: a number must be written {int(text)}, got {text}")
    return int(text)


def parse_draw(text: str) -> Draw | Real:
    """One line of ``draws.txt``; ValueError for what it cannot be."""
    kind, name, dtype, *fields = text.split(" ")
    if kind == "real" and name in FUNCTIONS and dtype in ("float32", "float64"):
        word, result = (_pattern(field, WIDTHS[dtype]) for field in fields)
        return Real(name, dtype, word, result, text)
    if kind != "draw" or name not in PARAMETERS or dtype not in WIDTHS:
        raise ValueError(f"draws: unknown kind of row {text[:120]!r}")
    lo, hi = (_pattern(field, 64) for field in fields[:2])
    position, first, count = map(_decimal, fields[2:5])
    kinds = PARAMETERS[name]
    computed = 64 if dtype == "float64" else 32
    parameters = tuple(
        _decimal(field) if kind == "d" else _pattern(field, computed)
        for kind, field in zip(kinds, fields[5 : 5 + len(kinds)], strict=True)
    )
    values = tuple(_pattern(field, WIDTHS[dtype]) for field in fields[5 + len(kinds) :])
    if len(values) != count:
        raise ValueError(f"draws: wrong number of values in {text[:120]!r}")
    return Draw(name, dtype, lo, hi, position, first, parameters, values, text)


@functools.cache
def read_draws() -> tuple[Draw | Real, ...]:
    """Every row of the file, in order."""
    lines = (DATA / "draws.txt").read_text("utf-8").splitlines()
    return tuple(parse_draw(line) for line in lines if line and not line.startswith("#"))


def draw_rows() -> list[Draw]:
    """The rows of draws."""
    return [row for row in read_draws() if isinstance(row, Draw)]


def real_rows() -> list[Real]:
    """The rows of logarithms, cosines and sines."""
    return [row for row in read_draws() if isinstance(row, Real)]


# ---------------------------------------------------------------- any file


@functools.cache
def data_lines(file: str) -> tuple[str, ...]:
    """Return the rows of ``<file>.txt``, as they are written."""
    lines = (DATA / f"{file}.txt").read_text("utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def fields_of(file: str, kind: str) -> list[list[str]]:
    """Return the fields of the rows of one kind, without its name."""
    return [line.split(" ")[1:] for line in data_lines(file) if line.startswith(f"{kind} ")]
