"""Write a report as JSON, an HTML page and a picture of the curves; its tables for a terminal."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._utils import atomic_file
from . import plots
from .result import Report

_EXTRA = 'pip install "fastseed[report]"'
_PASSED = {True: "passed", False: "FAILED", None: "not checked"}
_STYLES = {True: "green", False: "bold red", None: "dim"}


class Written(NamedTuple):
    """The files that were written, and why others were not."""

    files: list[Path]
    missing: list[str]


class Table(NamedTuple):
    """The arguments of ``fastseed.cli.output.table``."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    styles: Sequence[str] = ()


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
        missing.append(f"no curves.png without matplotlib: {_EXTRA}")
    try:
        contents["report.html"] = html(report, picture).encode("utf-8", "backslashreplace")
    except ImportError:
        missing.append(f"no report.html without jinja2: {_EXTRA}")
    return Written([atomic_file.replace(target / k, v) for k, v in contents.items()], missing)


def to_json(report: Report) -> str:
    """Return ``report`` as JSON: its fields, with NaN and infinities as strings (``"nan"``).

    Each number has the digits that identify the double.
    """
    fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    document = {"passed": report.passed, **fields}
    return json.dumps(_plain(document), indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if dataclasses.is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        finite = value.dtype.kind != "f" or np.isfinite(value).all()
        return value.tolist() if finite else [_plain(one) for one in value.tolist()]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def html(report: Report, picture: bytes | None) -> str:
    """Return the report as one page without scripts, which loads nothing.

    ``picture`` is a PNG, or None without matplotlib. The template escapes all text of runs.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return environment.get_template("template.html").render(
        report=report,
        tables=[*tables(report), *_details(report)],
        picture=None if picture is None else base64.b64encode(picture).decode("ascii"),
    )


def tables(report: Report) -> list[Table]:
    """Return the tables for the terminal; those without rows are left out."""
    checks = [
        (one.name, one.title, _PASSED[one.passed], str(one.pairs), one.message)
        for one in report.checks
    ]
    experiments = []
    for name, band in report.bands.items():
        row = (name, str(band.runs), "-", "-", "-", "-", "-")
        if len(band.steps):
            worst = int(np.where(np.isnan(band.std), np.inf, band.std).argmax())
            row = (
                *row[:2], str(band.steps[-1]), f"{band.mean[-1]:.6g}", f"{band.std[-1]:.3g}",
                f"{band.std[worst]:.3g}", str(band.steps[worst]),
            )  # fmt: skip
        experiments.append((*row, f"{sum(run.seconds for run in report.of(name)):.2f} s"))
    columns = ("experiment", "runs", "last step", "mean", "std", "largest std", "at step", "time")
    findings = [
        (one.kind, "yes" if one.certain else "likely", one.message, one.where, one.fix)
        for one in report.findings
    ]
    found = [
        Table("Checks", ("check", "property", "result", "pairs", "details"), checks,
              [_STYLES[one.passed] for one in report.checks]),
        Table("Experiments", columns, experiments),
        Table("Findings", ("kind", "observed", "cause", "where", "fix"), findings,
              ["bold red" if one.certain else "yellow" for one in report.findings]),
    ]  # fmt: skip
    return [table for table in found if table.rows]


def _details(report: Report) -> list[Table]:
    """Return the further tables of the page; those without rows are left out."""
    runs = [
        (run.name, f"{run.seconds:.2f} s", str(len(run.curve.steps)), " ".join(run.command))
        for run in report.runs
    ]
    columns = ("level", "what", "change", "before", "after", "why it matters")
    environment = [tuple(map(str, row)) for row in report.environment]
    found = [
        Table("Environment: first and last session", columns, environment),
        Table("Runs", ("run", "time", "steps", "command"), runs),
        Table("Versions", ("package", "version"), list(report.versions.items())),
    ]
    return [table for table in found if table.rows]
