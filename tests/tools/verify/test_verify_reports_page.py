"""The page as text: valid, self-contained, and nothing that a run wrote is markup in it."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from helpers.made_reports import CASES, a_run, make, planted
from hypothesis import given, settings
from hypothesis import strategies as st

from fastseed.tools.verify.reports import html_report
from fastseed.tools.verify.result import Finding

VOID = {"meta", "img", "br", "hr", "link", "input"}
# Elements that the template uses; any other came from somewhere else.
KNOWN = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section"),
    *("h1", "h2", "h3", "p", "div", "span", "strong", "b", "code", "pre", "ol", "li", "details"),
    *("summary", "table", "thead", "tbody", "tr", "th", "td", "figure", "img"),
}
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
PICTURE = b"\x89PNG\r\n\x1a\n not looked at"


class Outline(HTMLParser):
    """Elements and text of a page; every element has to be closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.text: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.table: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names)
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self.table = self.tables[dict(attrs)["id"]] = []
        elif tag == "tr":
            self.table.append([])
        elif tag in ("td", "th"):
            self.table[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.table[-1][-1] += data


def check(text: str) -> Outline:
    """The rules that every page keeps."""
    assert text.startswith("<!DOCTYPE html>\n") and text.count("<!DOCTYPE") == 1
    found = Outline(text)
    assert {tag for tag, _ in found.elements} <= KNOWN
    attributes = [
        (tag, name, value) for tag, held in found.elements for name, value in held.items()
    ]
    assert not [name for _, name, _ in attributes if name.startswith("on") or name == "style"]
    assert not [name for _, name, _ in attributes if name in ("href", "srcset", "action")]
    assert all(
        value.startswith("data:image/png;base64,") for _, n, value in attributes if n == "src"
    )
    ids = [held["id"] for _, held in found.elements if "id" in held]
    assert len(set(ids)) == len(ids)
    for _, name, value in attributes:
        if name == "aria-labelledby":
            assert value in ids
    policy = [
        h["content"] for t, h in found.elements if h.get("http-equiv", "").startswith("Content-S")
    ]
    assert policy == [POLICY]
    for rows in found.tables.values():
        assert len({len(row) for row in rows}) == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    text.encode("utf-8")
    return found


@pytest.mark.parametrize("picture", [PICTURE, None])
@pytest.mark.parametrize("case", CASES)
def test_every_case_is_a_valid_page(case, picture):
    report = CASES[case]()
    found = check(html_report.html(report, picture))
    text = "".join(found.text)
    assert report.verdict in text and report.says in text
    images = [held for tag, held in found.elements if tag == "img"]
    assert len(images) == (picture is not None)
    if images:
        data = images[0]["src"].partition(",")[2]
        assert base64.b64decode(data, validate=True) == picture
        assert len(images[0]["alt"]) > 100
    assert len(found.tables.get("runs", [()])) == 1 + len(report.runs)
    assert len(found.tables.get("checks", [()])) == 1 + len(report.checks)


def test_the_verdict_is_a_word_and_not_colour_alone():
    assert "✔ Passed: bit-identical" in "".join(check(html_report.html(make(), None)).text)
    text = html_report.html(make(differing=True), None)
    assert "✘ Failed: not reproducible" in "".join(check(text).text)
    assert "<title>Failed: not reproducible - fastseed verify</title>" in text


def test_what_the_tables_hold():
    report = make(differing=True)
    tables = check(html_report.html(report, None)).tables
    results = [row[2].strip() for row in tables["checks"][1:]]
    assert results == ["✘ failed", "✔ passed", "✘ failed", "✔ passed"]
    assert tables["differences"][1] == [
        *("repeat", "whole-0", "whole-1", "0/17", "1.9281726", "1.9281729", "183 of 200"),
    ]
    assert tables["differences"][2][3:6] == ["not the same steps", "-", "0.5"]
    band = report.bands["half"]
    assert tables["experiments"][2][3:7] == [
        *("0/0", f"{band.mean[0]:.6g} ± {band.std[0]:.3g}"),
        *("1/99", f"{band.mean[-1]:.6g} ± {band.std[-1]:.3g}"),
    ]
    one = report.paired[1]
    assert tables["paired"][2][0] == "unseeded less whole"
    assert tables["paired"][2][3] == f"[{one.interval95.low:.6g}, {one.interval95.high:.6g}]"
    assert tables["paired"][2][5] == "0.98765"
    assert tables["environment"][1][:2] == ["critical", "preload/LD_PRELOAD"]
    assert tables["environment"][1][3:5] == ["-", "/lib/libjemalloc.so"]
    assert tables["runs"][8][:1] + tables["runs"][8][4:] == [
        *("whole-7", "python train.py --seed 7 --epochs 4"),
    ]
    assert dict(tables["plan"][1:])["tolerance"] == "1e-06"
    assert dict(tables["versions"][1:])["torch"] == "2.13.0"


def test_findings_say_where_and_how_to_mend():
    text = "".join(check(html_report.html(make(differing=True), None)).text)
    for part in (
        "generator, likely: train.py:41",
        "a generator is made without a seed",
        "rng = fastseed.numpy_generator('augment')",
        "the log writes 6 digits",
    ):
        assert part in text  # fmt: skip


def test_the_table_of_steps_is_thinned():
    report = make(n=5000, count=2)
    rows = check(html_report.html(report, None)).tables["steps"]
    assert len(rows) == 1 + html_report.STEPS
    assert rows[1][0] == "0/0" and rows[-1][0] == "3/4999"
    assert rows[1][rows[0].index("resumed: mean")] == ""
    assert len(check(html_report.html(make(n=10), None)).tables["steps"]) == 11


def test_commands_are_as_a_shell_takes_them():
    run = a_run("whole", 0, ["0"], [1.0])
    report = replace(make(), runs=(replace(run, command=("python", "-c", "print('a b')")),))
    rows = check(html_report.html(report, None)).tables["runs"]
    assert rows[1][4] == """python -c 'print('"'"'a b'"'"')'"""


def test_nothing_that_a_run_wrote_is_markup():
    report = planted()
    found = check(html_report.html(report, PICTURE))
    text = "".join(found.text)
    assert text.count("<script>") > 10 and "onerror=" in text  # it is there, as text
    assert "\\u202e" in text and "\\x1b" in text


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_text(text):
    report = replace(make(count=1, n=2), findings=(Finding(text, True, text, text, text),))
    report = replace(report, verdict=text, says=text, notes=(text,), plan={text: [text]})
    check(html_report.html(report, None))


def test_a_text_without_end_is_cut():
    found = html_report.html(replace(make(n=4), says="x" * 100_000), None)
    assert "… and 96000 more characters" in found and "x" * 4001 not in found
