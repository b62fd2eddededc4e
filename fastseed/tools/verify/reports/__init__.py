"""Write a report as JSON, an HTML page and a picture of the curves."""

from __future__ import annotations

import json
import math
import os
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...._utils import atomic_file
from ..result import Report
from . import html_report, plots

FORMAT = 1


class Written(NamedTuple):
    """The files that were written, and why others were not."""

    files: list[Path]
    missing: list[str]


def write(report: Report, folder: str | os.PathLike[str]) -> Written:
    """Write ``report.json``, ``report.html`` and ``curves.png`` to ``folder``.

    Existing files are replaced atomically. A file whose package is missing is left out.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    contents = {"report.json": to_json(report).encode()}
    missing = []
    picture = None
    try:
        contents["curves.png"] = picture = plots.png(report)
    except ImportError:
        missing.append('no curves.png without matplotlib: pip install "fastseed[report]"')
    try:
        page = html_report.html(report, picture)
        contents["report.html"] = page.encode("utf-8", "backslashreplace")
    except ImportError:
        missing.append('no report.html without jinja2: pip install "fastseed[report]"')
    return Written([atomic_file.replace(target / k, v) for k, v in contents.items()], missing)


def to_json(report: Report) -> str:
    """Return ``report`` as JSON: its fields, with NaN and infinities as strings (``"NaN"``).

    Each number has the digits that identify the double.
    """
    document = {"format": FORMAT, "kind": "fastseed-verify", **_plain(report)}
    # One line for each field of the report.
    lines = (f"{json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in document.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist() if np.isfinite(value).all() else [_plain(v) for v in value.tolist()]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if not isinstance(value, (list, tuple)):
        return str(value)
    if all(type(one) is str for one in value):  # the names of millions of steps
        return value
    return [_plain(one) for one in value]
