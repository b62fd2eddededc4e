"""The reports: JSON, HTML page, picture, and tables."""

from __future__ import annotations

import base64
import json
import os
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers.made_reports import ATTACKS, CASES, failing, hostile, passing

from fastseed.tools.verify import plots, reports

NAMES = ["curves.png", "report.html", "report.json"]
PICTURE = b"\x89PNG not checked"


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.mark.slow
@pytest.mark.parametrize("case", ["long", "single", "no baseline"])
def test_pictures(case):
    assert plots.png(CASES[case]()).startswith(b"\x89PNG")


@pytest.mark.parametrize("case", CASES)
def test_all_files_of_any_report(case, tmp_path, monkeypatch):
    if case not in ("failing", "hostile"):  # a picture takes seconds
        monkeypatch.setattr(plots, "png", lambda report: PICTURE)
    report = CASES[case]()
    written = reports.write(report, tmp_path / "a" / "report")
    assert sorted(path.name for path in written.files) == NAMES and not written.missing
    assert sorted(os.listdir(tmp_path / "a" / "report")) == NAMES
    found = {path.name: path.read_bytes() for path in written.files}
    assert found["curves.png"].startswith(b"\x89PNG")
    page = Page(found["report.html"].decode())
    assert {tag for tag, _ in page.elements} <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "img"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    attributes = {name for _, held in page.elements for name in held}
    assert not attributes & {"href", "srcset", "style"}
    assert not [name for name in attributes if name.startswith("on")]
    source = next(held["src"] for tag, held in page.elements if tag == "img")
    assert base64.b64decode(source.partition(",")[2]) == found["curves.png"]


def test_files_are_the_same_to_the_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "png", lambda report: PICTURE)
    first = [path.read_bytes() for path in reports.write(failing(), tmp_path).files]
    assert [path.read_bytes() for path in reports.write(failing(), tmp_path).files] == first


@pytest.mark.parametrize(
    ("package", "lost"), [("matplotlib", "curves.png"), ("jinja2", "report.html")]
)
def test_without_a_package_its_file_is_missing(package, lost, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "png", lambda report: PICTURE)
    if package == "matplotlib":
        monkeypatch.undo()
    for name in [one for one in sys.modules if one.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    written = reports.write(passing(), tmp_path)
    assert sorted(path.name for path in written.files) == [one for one in NAMES if one != lost]
    assert written.missing == [f'no {lost} without {package}: pip install "fastseed[report]"']


def test_json_has_every_field_and_every_bit():
    report = failing()

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    found = json.loads(reports.to_json(report), parse_constant=refuse)
    assert list(found) == ["passed", *report.__dataclass_fields__]
    curve = report.runs[1].curve
    values = found["runs"][1]["curve"]["values"]
    assert values[5:8] == ["nan", "inf", "-inf"]
    assert np.array(list(map(float, values))).tobytes() == curve.values.tobytes()
    assert found["runs"][1]["curve"]["steps"] == curve.steps.tolist()
    assert found["environment"] == [list(report.environment[0])]


def test_the_page_names_the_verdict():
    page = Page(reports.html(failing(), PICTURE))
    for text in ("✘ Failed: not reproducible", "step 2/30", "preload/LD_PRELOAD", "train.py:41"):
        assert text in page.text
    page = Page(reports.html(passing(), None))
    assert "✔ Passed: bit-identical" in page.text and "img" not in dict(page.elements)


def test_text_of_runs_is_escaped():
    page = Page(reports.html(hostile(), None))
    assert all(text in page.text for text in ATTACKS)
    policy = [held["content"] for _, held in page.elements if "http-equiv" in held]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_tables():
    found = {table.title: table for table in reports.tables(failing())}
    checks = found["Checks"]
    assert [row[2] for row in checks.rows] == [*["FAILED"] * 3, "passed", "not checked"]
    assert checks.styles == [*["bold red"] * 3, "green", "dim"]
    experiments = {row[0]: row for row in found["Experiments"].rows}
    assert experiments["uninterrupted"][-3:] == ("nan", "0/5", "3.75 s")
    assert [row[1] for row in found["Findings"].rows] == ["yes", "likely"]
    for table in reports.tables(hostile()):
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert all(isinstance(cell, str) for row in table.rows for cell in row)
