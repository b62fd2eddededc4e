"""The tables for the terminal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.made_reports import CASES, a_run, broken, make

from fastseed.cli import output
from fastseed.tools.verify.reports import phrasing, terminal

TABLES = (terminal.checks, terminal.experiments, terminal.paired, terminal.findings)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("table", TABLES)
def test_tables_are_printed(case, table, capsys):
    found = table(CASES[case]())
    assert all(len(row) == len(found.columns) for row in found.rows)
    assert all(isinstance(cell, str) for row in found.rows for cell in row)
    assert len(found.styles) == len(found.rows)
    output.table(found.columns, found.rows, title=found.title, styles=found.styles)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == found.title and len(lines) == 3 + len(found.rows)


def test_checks():
    found = terminal.checks(make(count=1, differing=True))
    assert found.rows[0] == (
        *("repeat", "runs of the same seed repeat", "not asked", "-", "0"),
        "7 of 7 pairs differ",
    )
    assert [row[2] for row in found.rows] == ["not asked", "passed", "FAILED", "passed"]
    assert found.styles == ["dim", "green", "bold red", "green"]


def test_experiments():
    report = make(n=8)
    rows = {row[0]: row for row in terminal.experiments(report).rows}
    band = report.bands["unseeded"]
    worst = int(band.std.argmax())
    assert rows["unseeded"] == (
        *("unseeded", "8", "no", "3/7", f"{band.mean[-1]:.6g}", f"{band.std[-1]:.3g}"),
        *(f"{band.std[worst]:.3g}", band.steps[worst], "13.50 s"),
    )
    assert rows["resumed"][2] == "yes"
    assert "unseeded" not in {row[0] for row in terminal.experiments(make(unseeded=False)).rows}


def test_a_standard_deviation_that_is_no_number_is_the_largest():
    rows = {row[0]: row for row in terminal.experiments(broken()).rows}
    assert rows["whole"][-3:-1] == ("nan", "1/50")


def test_paired():
    found = terminal.paired(make(count=1))
    assert found.rows[0] == ("half and resumed less whole", "1", "0", "-", "-", "1")


def test_findings():
    found = terminal.findings(make(differing=True))
    assert found.rows[1][:2] == ("generator", "likely")
    assert found.styles == ["bold red", "yellow", "bold red"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.004, "0.00 s"), (59.99, "59.99 s"), (60, "1 min 0 s"), (3599.6, "1 h 0 min"),
        (7325, "2 h 2 min"), (float("nan"), "nan s"), (float("inf"), "inf s"), (-1.0, "-1.0 s"),
    ],
)  # fmt: skip
def test_seconds(value, text):
    assert phrasing.seconds(value) == text


def test_runs_are_alike_to_the_last_bit():
    a = a_run("whole", 0, "ab", [0.0, np.nan])
    assert phrasing.alike((a,)) is None
    assert phrasing.alike((a, a_run("whole", 1, "ab", [0.0, np.nan])))
    assert not phrasing.alike((a, a_run("whole", 1, "ab", [-0.0, np.nan])))
    other = replace(a, curve=replace(a.curve, steps=("a", "c")))
    assert not phrasing.alike((a, other))
