"""The report as one HTML file: no script, no network, nothing beside it.

All text that comes from runs is escaped by the template and cleaned of control characters; the
policy in the page's head lets a browser load nothing but the picture within.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..result import EXPERIMENTS, Report
from . import terminal
from .json_report import encode
from .phrasing import alike, clean, count, exact, number, pair, seconds

STEPS = 200  # rows of the table of steps
_TEMPLATE = Path(__file__).with_name("template.html")
_LONGEST = 4000  # characters of one text


def html(report: Report, picture: bytes | None) -> str:
    """The page.

    Args:
        report: what it shows.
        picture: the PNG of :func:`fastseed.tools.verify.reports.plots.png`; None if there is none.

    Raises:
        ImportError: jinja2 is missing.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    data = None if picture is None else base64.b64encode(picture).decode("ascii")
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        report=report,
        took=seconds(report.seconds),
        runs_said=count(len(report.runs)),
        ratio=number(report.variance_ratio),
        tables=_tables(report),
        picture=None if data is None else Markup(f"data:image/png;base64,{data}"),
        described=_described(report),
    )


def _shown(value: Any) -> Any:
    """What every ``{{ … }}`` of the template goes through before it is escaped."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    rest = len(value) - _LONGEST
    return clean(value) if rest <= 0 else f"{clean(value[:_LONGEST])} … and {rest} more characters"


def _tables(report: Report) -> dict[str, tuple[Sequence[str], Sequence[Sequence[str]]]]:
    """Headings and rows of each table, by name."""
    versions = [(name, version) for name, version in report.versions.items()]
    plan = [(name, _plain(value)) for name, value in report.plan.items()]
    return {
        "experiments": _experiments(report),
        "paired": _paired(report),
        "differences": _differences(report),
        "environment": (
            ("level", "where", "what", "before", "after", "why it matters"),
            [tuple(map(_plain, row)) for row in report.environment],
        ),
        "runs": (
            ("run", "time", "steps", "folder", "command"),
            [
                (run.name, seconds(run.seconds), str(len(run.curve.steps)), run.folder, command)
                for run in report.runs
                for command in (shlex.join(run.command),)
            ],
        ),
        "plan": (("setting", "value"), plan),
        "versions": (("of", "version"), versions),
        "steps": _steps(report),
    }


def _plain(value: Any) -> str:
    """A plain value in words: text as it is, all else as JSON."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(encode(value), ensure_ascii=False)


def _experiments(report: Report) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = []
    for name in EXPERIMENTS:
        runs, band = report.of(name), report.bands.get(name)
        if not runs and band is None:
            continue
        figures = ["-"] * 5
        if band is not None and len(band.steps):
            figures = []
            for i in (0, -1):
                spread = number(float(band.std[i]), 3)
                figures += [band.steps[i], f"{number(float(band.mean[i]))} ± {spread}"]
            worst = terminal.largest(band.std)
            figures.append(f"{number(float(band.std[worst]), 3)} at {band.steps[worst]}")
        same = {True: "identical", False: "they differ", None: "-"}[alike(runs)]
        rows.append((name, str(len(runs)), same, *figures))
    columns = (
        *("experiment", "runs", "bits", "first step", "mean ± std there"),
        *("last step", "mean ± std there", "largest std"),
    )
    return columns, rows


def _paired(report: Report) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    found = terminal.paired(report)
    return found.columns, found.rows


def _differences(report: Report) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = [
        (
            *(check.name, one.a, one.b, one.step if one.step is not None else "not the same steps"),
            *(exact(one.value_a), exact(one.value_b), f"{one.differing} of {one.compared}"),
        )
        for check in report.checks
        for one in check.differences
    ]
    return ("check", "a", "b", "first step", "loss of a", "loss of b", "steps that differ"), rows


def _steps(report: Report) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Mean and standard deviation of at most :data:`STEPS` steps, and the paired differences."""
    names: dict[str, None] = {}
    for band in report.bands.values():
        names.update(dict.fromkeys(band.steps))
    every = list(names)
    kept = np.unique(np.linspace(0, len(every) - 1, min(len(every), STEPS)).round().astype(int))
    rows = [[every[i]] for i in kept]
    columns = ["step"]
    for name in EXPERIMENTS:
        held = report.bands.get(name)
        if held is not None:
            columns += [f"{name}: mean", "std"]
            at = {step: i for i, step in enumerate(held.steps)}
            for row in rows:
                i = at.get(row[0], -1)
                row += ["", ""] if i < 0 else [number(held.mean[i]), number(held.std[i], 3)]
    for one in report.paired:
        columns.append(pair(one))
        at = {step: i for i, step in enumerate(one.steps)}
        for row in rows:
            i = at.get(row[0], -1)
            row.append("" if i < 0 else number(one.mean[i], 3))
    return columns, rows


def _described(report: Report) -> str:
    """What the picture shows, for those who do not see it."""
    said = {True: ", all identical", False: ", which differ", None: ""}
    parts = []
    for name in EXPERIMENTS:
        runs = report.of(name)
        parts.append(f"{name}: {count(len(runs))}{said[alike(runs)]}")
    return (
        f"Curves of the loss over the steps ({'; '.join(parts)}), their means with bands of "
        "standard deviations, and the paired differences with their intervals. "
        "The tables give the figures."
    )
