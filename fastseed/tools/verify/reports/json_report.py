"""The report as one JSON document, and back.

The document is an object of ASCII text with the keys ``"format"`` (1), ``"kind"``
(``"fastseed-verify"``) and one for each field of :class:`~fastseed.tools.verify.result.Report`; the
classes of :mod:`fastseed.tools.verify.result` are objects with a key for each of their fields, in which
the fields' names and meanings are those of the classes:

==================  ==========================================================================
field is            written as
==================  ==========================================================================
str, bool, int      the same
float               a number whose decimal digits give back the same double, or one of the
                    strings ``"NaN"``, ``"Infinity"``, ``"-Infinity"``, for JSON has none; a NaN
                    with other bits than the usual one as ``"NaN:fff8000000000000"``
array of float64    a list of these
tuple               a list
None                null
dict                an object
``plan``,           plain values: in these tuples come back as lists, floats that are not finite
``environment``     as the strings above, and what JSON has no form for as its ``str()``
==================  ==========================================================================

It is strictly valid JSON. Keys that are missing, unknown or double are refused when it is read.
"""

from __future__ import annotations

import json
import math
import os
import struct
import types
import typing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...._utils import strict_json
from ...._utils.strict_json import Invalid
from ..result import EXPERIMENTS, Band, Curve, Paired, Report, Run

FORMAT = 1
KIND = "fastseed-verify"
_NAN = 0x7FF8000000000000
_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def text(report: Report) -> str:
    """``report`` as a JSON document, a line for each of its fields."""
    document = {"format": FORMAT, "kind": KIND, **encode(report)}
    lines = (f"{_dumps(key)}: {_dumps(value)}" for key, value in document.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def load(path: str | os.PathLike[str]) -> Report:
    """The report that a document holds: the inverse of what :func:`text` writes.

    Raises:
        TypeError: ``path`` is not a path.
        ValueError: the file is no such document; the message says where it is not.
        OSError: it cannot be read.
    """
    function = "fastseed.tools.verify.reports.load"
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{function}: path must be a path, got {type(path).__name__}")
    try:
        return parse(Path(path).read_bytes())
    except Invalid as error:
        raise ValueError(f"{function}: path must be {error}, got {os.fspath(path)!r}") from None


def parse(data: bytes | str) -> Report:
    """The report that a document's text holds; ValueError if it is none."""
    document = strict_json.parse(data)
    if not isinstance(document, dict) or document.pop("kind", None) != KIND:
        raise Invalid("a report of `fastseed verify`")
    found = document.pop("format", None)
    if isinstance(found, bool) or found != FORMAT:
        raise Invalid(f"of format {FORMAT}, not {str(found)[:20]!r}")
    report: Report = _decode(Report, document, "")
    _check(report)
    return report


# ---------------------------------------------------------------- to plain values


def encode(value: Any) -> Any:
    """``value`` as what :mod:`json` writes strictly."""
    if is_dataclass(value):
        return {one.name: encode(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, np.ndarray):
        return [_number(one) for one in value.tolist()]
    if value is None or isinstance(value, (str, bool, int)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, (float, np.floating)):
        return _number(float(value))
    if isinstance(value, (np.bool_, np.integer)):
        return value.item()
    if isinstance(value, dict):
        return {str(key): encode(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(one) for one in value]
    return str(value)


def _number(value: Any) -> float | str:
    if math.isfinite(value):
        return float(value)
    if not math.isnan(value):
        return "Infinity" if value > 0 else "-Infinity"
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return "NaN" if bits == _NAN else f"NaN:{bits:016x}"


# ---------------------------------------------------------------- and back


def _decode(kind: Any, value: Any, where: str) -> Any:
    """``value`` as ``kind``, a type annotation of :mod:`fastseed.tools.verify.result`."""
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _decode_object(kind, value, where)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (one,) = (part for part in inner if part is not type(None))
        return None if value is None else _decode(one, value, where)
    if origin is tuple:
        many = _expect(list, value, where)
        return tuple(_decode(inner[0], one, f"{where}/{i}") for i, one in enumerate(many))
    if origin is np.ndarray:
        many = _expect(list, value, where)
        return np.array([_float(one, f"{where}/{i}") for i, one in enumerate(many)], np.float64)
    if origin is dict:
        items = _expect(dict, value, where).items()
        return {key: _decode(inner[1], one, f"{where}/{key}") for key, one in items}
    return _float(value, where) if kind is float else _expect(kind, value, where)


def _decode_object(kind: Any, value: Any, where: str) -> Any:
    found = _expect(dict, value, where)
    hints = typing.get_type_hints(kind)
    for key in hints:
        if key not in found:
            raise Invalid(f"a document with {f'{where}/{key}'!r}")
    for key in found:
        if key not in hints:
            raise Invalid(f"a document without the unknown {f'{where}/{key[:40]}'!r}")
    return kind(**{key: _decode(hint, found[key], f"{where}/{key}") for key, hint in hints.items()})


_CALLED = {
    list: "a list",
    dict: "an object",
    str: "a string",
    bool: "true or false",
    int: "a whole number",
}


def _expect(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Invalid(f"a document whose {where or '/'!r} is {_CALLED[kind]}")
    return value


def _float(value: Any, where: str) -> float:
    if isinstance(value, str):
        if value in _NAMES:
            return _NAMES[value]
        name, _, bits = value.partition(":")
        if name == "NaN" and len(bits) == 16 and all(c in "0123456789abcdef" for c in bits):
            found: float = struct.unpack("<d", struct.pack("<Q", int(bits, 16)))[0]
            if math.isnan(found):
                return found
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            if math.isfinite(float(value)):  # 1e999 is read as infinity
                return float(value)
        except OverflowError:
            pass
    raise Invalid(f'a document whose {where!r} is a float64, "NaN", "Infinity" or "-Infinity"')


# ---------------------------------------------------------------- what types do not say


def _check(report: Report) -> None:
    for i, run in enumerate(report.runs):
        _check_run(run, f"/runs/{i}")
    for name, band in report.bands.items():
        if name not in EXPERIMENTS:
            raise Invalid(f"a document whose '/bands' are of {', '.join(EXPERIMENTS)}")
        _check_sizes(band, ("mean", "std"), f"/bands/{name}")
    for i, paired in enumerate(report.paired):
        names = ("mean", "low95", "high95", "low99", "high99")
        _check_sizes(paired, names, f"/paired/{i}")


def _check_run(run: Run, where: str) -> None:
    if run.experiment not in EXPERIMENTS:
        raise Invalid(f"a document whose {where + '/experiment'!r} is {', '.join(EXPERIMENTS)}")
    _check_sizes(run.curve, ("values",), f"{where}/curve")
    if len(set(run.curve.steps)) != len(run.curve.steps):
        raise Invalid(f"a document whose {where + '/curve/steps'!r} has no repeats")


def _check_sizes(holder: Curve | Band | Paired, names: tuple[str, ...], where: str) -> None:
    for name in names:
        array = getattr(holder, name)
        if array is not None and len(array) != len(holder.steps):
            raise Invalid(f"a document whose {f'{where}/{name}'!r} has a value for each step")
