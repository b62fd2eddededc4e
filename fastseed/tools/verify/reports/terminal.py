"""The report as tables: columns, rows, a title and a style a row. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..result import EXPERIMENTS, Report
from .phrasing import RESULTS, alike, interval, number, pair, seconds

_GOOD, _BAD, _FAINT, _LIKELY = "green", "bold red", "dim", "yellow"


class Table(NamedTuple):
    """What ``fastseed.cli.output.table`` prints.

    Attributes:
        columns: the headings.
        rows: the cells of each row, text, as many as columns.
        title: a line above it.
        styles: rich's style for each row.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    title: str
    styles: Sequence[str]


def checks(report: Report) -> Table:
    """Each question with its answer."""
    rows, styles = [], []
    for one in report.checks:
        same = "-" if one.passed is None or not one.pairs else "yes" if one.identical else "no"
        rows.append((one.name, one.title, RESULTS[one.passed], same, str(one.pairs), one.says))
        styles.append({True: _GOOD, False: _BAD, None: _FAINT}[one.passed])
    columns = ("check", "asked", "result", "bit-identical", "pairs", "says")
    return Table(columns, rows, "Checks", styles)


def experiments(report: Report) -> Table:
    """Each experiment: its runs, mean and standard deviation at the last step they all have."""
    rows = []
    for name in EXPERIMENTS:
        runs, band = report.of(name), report.bands.get(name)
        if not runs and band is None:
            continue
        same = {True: "yes", False: "no", None: "-"}[alike(runs)]
        took = seconds(sum(run.seconds for run in runs))
        figures: tuple[str, ...] = ("-",) * 5
        if band is not None and len(band.steps):
            worst = largest(band.std)
            figures = (
                *(band.steps[-1], number(float(band.mean[-1])), number(float(band.std[-1]), 3)),
                *(number(float(band.std[worst]), 3), band.steps[worst]),
            )
        rows.append((name, str(len(runs)), same, *figures, took))
    columns = (
        *("experiment", "runs", "bit-identical", "last step", "mean there", "std there"),
        *("largest std", "at step", "time"),
    )
    return Table(columns, rows, "Experiments", [""] * len(rows))


def largest(std: np.ndarray) -> int:
    """Where the standard deviation is largest; one that is not a number is larger than any."""
    return int(np.where(np.isnan(std), np.inf, std).argmax())


def paired(report: Report) -> Table:
    """What the runs differ by, pair by pair."""
    rows = [
        (
            *(pair(one), str(one.pairs), number(one.overall)),
            *(interval(one.interval95), interval(one.interval99), number(one.correlation)),
        )
        for one in report.paired
    ]
    columns = (
        *("compared", "pairs", "mean difference"),
        *("95% interval", "99% interval", "correlation"),
    )
    return Table(columns, rows, "Paired differences", [""] * len(rows))


def findings(report: Report) -> Table:
    """Why runs differ, what matters most first."""
    rows = [
        (one.kind, "yes" if one.certain else "likely", one.says, one.where, one.mend)
        for one in report.findings
    ]
    styles = [_BAD if one.certain else _LIKELY for one in report.findings]
    return Table(("kind", "observed", "what", "where", "mend"), rows, "Findings", styles)
