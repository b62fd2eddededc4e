"""The reports: JSON, picture, and tables."""

from __future__ import annotations

import json
import math
import os
import sys

import pytest
from helpers.made_reports import all_runs, judged, line, replaced

from fastseed.tools.verify import reports

HOSTILE = "<script>$x_1$\x1b[31m{{ 7 }}\udc80"


def failing():
    values = [math.nextafter(1, 2), math.nan, math.inf, -math.inf]
    return judged(replaced(all_runs(), "uninterrupted-1", line(values)), causes=(HOSTILE,))


@pytest.mark.slow
@pytest.mark.parametrize("runs", [all_runs(1, unseeded=False), list(failing().runs)])
def test_pictures(runs):
    assert reports.png(judged(runs)).startswith(b"\x89PNG")


def test_files(tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "png", lambda report: b"\x89PNG")
    written = reports.write(failing(), tmp_path / "a" / "report")
    assert [path.name for path in written] == ["report.json", "curves.png"]
    assert sorted(os.listdir(tmp_path / "a" / "report")) == ["curves.png", "report.json"]
    before = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in reports.write(failing(), written[0].parent)] == before


def test_without_matplotlib_there_is_no_picture(tmp_path, monkeypatch):
    for name in [one for one in sys.modules if one.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert [path.name for path in reports.write(judged(all_runs()), tmp_path)] == ["report.json"]


def test_json_has_every_field_and_every_bit():
    report = failing()

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    found = json.loads(reports.to_json(report), parse_constant=refuse)
    assert list(found) == ["passed", *report.__dataclass_fields__]
    values = next(
        r for r in found["runs"] if (r["experiment"], r["number"]) == ("uninterrupted", 1)
    )
    first, *others = values["curve"]["values"].values()
    assert first == math.nextafter(1, 2) and others == ["nan", "inf", "-inf"]
    assert found["causes"] == [HOSTILE]


def test_experiments():
    rows = {row[0]: row[1:] for row in reports.experiments(failing())}
    assert rows["uninterrupted"] == (2, "3", "-inf to 1", "2.00 s")
