"""The report as tables, for the terminal and the HTML page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..result import EXPERIMENTS, Interval, Paired, Report, Run

_PASSED = {True: "passed", False: "FAILED", None: "not checked"}
_STYLES = {True: "green", False: "bold red", None: "dim"}


class Table(NamedTuple):
    """The arguments of ``fastseed.cli.output.table``."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    styles: Sequence[str] = ()


def summary(report: Report) -> list[Table]:
    """Return the tables for the terminal; those without rows are left out."""
    tables = (_checks(report), _experiments(report), _paired(report), _findings(report))
    return [table for table in tables if table.rows]


def details(report: Report) -> list[Table]:
    """Return the further tables of the HTML page; those without rows are left out."""
    differences = [
        (
            *(check.name, one.a, one.b, one.step or "no common step"),
            *(repr(one.value_a), repr(one.value_b), f"{one.differing} of {one.compared}"),
        )
        for check in report.checks
        for one in check.differences
    ]
    runs = [
        (run.name, seconds(run.seconds), str(len(run.curve.steps)), run.folder, command)
        for run in report.runs
        for command in (shlex.join(run.command),)
    ]
    tables = (
        Table(
            "First differences",
            ("check", "a", "b", "step", "loss of a", "loss of b", "steps that differ"),
            differences,
        ),
        Table(
            "Environment: first and last session",
            ("level", "what", "change", "before", "after", "why it matters"),
            [tuple(map(_text, row)) for row in report.environment],
        ),
        Table("Runs", ("run", "time", "steps", "folder", "command"), runs),
        Table("Options", ("option", "value"), [(k, _text(v)) for k, v in report.options.items()]),
        Table("Versions", ("package", "version"), list(report.versions.items())),
    )
    return [table for table in tables if table.rows]


def _checks(report: Report) -> Table:
    rows, styles = [], []
    for one in report.checks:
        same = "-" if one.passed is None or not one.pairs else "yes" if one.identical else "no"
        rows.append((one.name, one.title, _PASSED[one.passed], same, str(one.pairs), one.message))
        styles.append(_STYLES[one.passed])
    columns = ("check", "property", "result", "bit-identical", "pairs", "details")
    return Table("Checks", columns, rows, styles)


def _experiments(report: Report) -> Table:
    rows = []
    for name, band in report.bands.items():
        runs = report.of(name)
        same = {True: "yes", False: "no", None: "-"}[identical(runs)]
        figures: tuple[str, ...] = ("-",) * 5
        if band.steps:
            worst = int(np.where(np.isnan(band.std), np.inf, band.std).argmax())
            figures = (
                *(band.steps[-1], number(band.mean[-1]), number(band.std[-1], 3)),
                *(number(band.std[worst], 3), band.steps[worst]),
            )
        total = seconds(sum(run.seconds for run in runs))
        rows.append((name, str(len(runs)), same, *figures, total))
    columns = (
        *("experiment", "runs", "bit-identical", "last step", "mean", "std"),
        *("largest std", "at step", "time"),
    )
    return Table("Experiments", columns, rows)


def _paired(report: Report) -> Table:
    rows = [
        (
            *(pair(one), str(one.pairs), number(one.overall)),
            *(_interval(one.interval95), _interval(one.interval99), number(one.correlation)),
        )
        for one in report.paired
    ]
    columns = (
        *("compared", "pairs", "mean difference"),
        *("95% interval", "99% interval", "correlation"),
    )
    return Table("Paired differences", columns, rows)


def _findings(report: Report) -> Table:
    rows = [
        (one.kind, "yes" if one.certain else "likely", one.message, one.where, one.fix)
        for one in report.findings
    ]
    styles = ["bold red" if one.certain else "yellow" for one in report.findings]
    return Table("Findings", ("kind", "observed", "cause", "where", "fix"), rows, styles)


# ---------------------------------------------------------------- text


def number(value: float | None, digits: int = 6) -> str:
    """Return a number with at most ``digits`` digits, ``-`` for None."""
    return "-" if value is None else f"{value:.{digits}g}"


def seconds(value: float) -> str:
    """Return a duration: ``8.25 s``, ``12 min 5 s``, ``2 h 0 min``."""
    if value < 60:
        return f"{value:.2f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def pair(one: Paired) -> str:
    """Return what is compared; resumed runs are joined with the truncated runs before them."""
    return f"{'truncated and resumed' if one.b == 'resumed' else one.b} minus {one.a}"


def identical(runs: Sequence[Run]) -> bool | None:
    """Return True if runs have the same steps and losses; None for fewer than two runs."""
    if len(runs) < 2:
        return None
    steps, bits = runs[0].curve.steps, runs[0].curve.values.tobytes()
    return all(run.curve.steps == steps and run.curve.values.tobytes() == bits for run in runs)


def describe(report: Report) -> str:
    """Return what the picture shows."""
    words = {True: ", identical", False: ", different", None: ""}
    parts = [
        f"{name}: {len(runs)} runs{words[identical(runs)]}"
        for name in EXPERIMENTS
        if (runs := report.of(name))
    ]
    return (
        f"Losses over the steps ({'; '.join(parts)}), means with standard deviations, and paired "
        "differences with their intervals"
    )


def _interval(value: Interval | None) -> str:
    return "-" if value is None else f"[{number(value.low)}, {number(value.high)}]"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, default=str)
