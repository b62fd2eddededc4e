"""The files of a report: which are written, how, and what a missing package does."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.made_reports import CASES, make

from fastseed.tools.verify import reports

ROOT = Path(__file__).resolve().parents[3]
SMALL = make(count=2, n=4)
NAMES = {"json": "report.json", "html": "report.html", "png": "curves.png", "junit": "junit.xml"}


@pytest.mark.parametrize("case", ["differing", "single", "nothing"])
def test_write_all_formats(case, tmp_path):
    written = reports.write(CASES[case](), tmp_path / "a" / "report")
    assert {name: path.name for name, path in written.items()} == NAMES
    assert written.skipped == {}
    assert sorted(os.listdir(tmp_path / "a" / "report")) == sorted(NAMES.values())
    assert all(path.stat().st_size > 100 for path in written.values())


def test_write_twice_is_the_same_to_the_byte(tmp_path):
    first = {k: p.read_bytes() for k, p in reports.write(SMALL, tmp_path).items()}
    assert {k: p.read_bytes() for k, p in reports.write(SMALL, tmp_path).items()} == first


def test_write_some_formats(tmp_path):
    assert set(reports.write(SMALL, tmp_path, formats=["junit", "json"])) == {"json", "junit"}
    assert sorted(os.listdir(tmp_path)) == ["junit.xml", "report.json"]


def test_write_leaves_the_old_file_where_a_new_one_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "report.json").write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        reports.write(SMALL, tmp_path, formats=["json"])
    assert os.listdir(tmp_path) == ["report.json"]
    assert (tmp_path / "report.json").read_text() == "old"


def test_write_keeps_to_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        path = reports.write(SMALL, tmp_path, formats=["json"])["json"]
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("package", "format"), [("matplotlib", "png"), ("junitparser", "junit"), ("jinja2", "html")]
)
def test_a_missing_package_skips_its_format_alone(package, format, tmp_path, monkeypatch):
    hide(monkeypatch, package)
    written = reports.write(SMALL, tmp_path)
    assert set(written) == set(NAMES) - {format}
    assert list(written.skipped) == [format]
    for part in (format, package, 'pip install "fastseed[report]"'):
        assert part in written.skipped[format]
    assert not (tmp_path / NAMES[format]).exists()


@pytest.mark.parametrize(
    ("package", "format"), [("matplotlib", "png"), ("junitparser", "junit"), ("jinja2", "html")]
)
def test_a_missing_package_of_a_format_that_was_asked_for(package, format, tmp_path, monkeypatch):
    hide(monkeypatch, package)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install \"fastseed\[report\]\""):
        reports.write(SMALL, tmp_path / "new", formats=("json", format))
    assert not (tmp_path / "new").exists()  # nothing of it, not even the JSON


def test_the_page_without_matplotlib_says_that_the_picture_is_missing(tmp_path, monkeypatch):
    hide(monkeypatch, "matplotlib")
    written = reports.write(SMALL, tmp_path, formats=["html"])
    text = written["html"].read_text()
    assert "No picture: matplotlib is not installed" in text and "<img" not in text
    assert list(written.skipped) == ["png"]


def hide(monkeypatch, package: str) -> None:
    """Let ``import package`` fail, and that of what is in it."""
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((None, "x"), TypeError, r"write: report must be a Report, got NoneType"),
        ((make(), 3), TypeError, r"write: folder must be a path, got int"),
        ((make(), "x", "png"), TypeError, r"write: formats must be a sequence of names, got 'png'"),
        ((make(), "x", ["json", "pdf"]), ValueError, r"formats\[1\] must be one of .*, got 'pdf'"),
    ],
)
def test_write_refuses(arguments, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    *positional, formats = (*arguments, reports.FORMATS)[:3]
    with pytest.raises(error, match=message):
        reports.write(*positional, formats=formats)
    assert os.listdir(tmp_path) == []


def test_the_template_is_installed_with_the_package():
    code = (
        "from setuptools import Distribution; import json; d = Distribution();"
        "d.parse_config_files(['pyproject.toml']); print(json.dumps(d.package_data))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stderr
    data = json.loads(found.stdout.splitlines()[-1])
    assert "page.html" in data["fastseed.tools.verify.reports"]


def test_importing_and_drawing_changes_nothing_of_matplotlib(tmp_path):
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import fastseed.tools.verify.reports as reports
heavy = {"matplotlib", "jinja2", "junitparser", "rich", "pandas"} & set(sys.modules)
import matplotlib, warnings, random, numpy
before = dict(matplotlib.rcParams), list(warnings.filters), random.getstate()
state = numpy.random.get_state(legacy=False)["state"]["key"].tobytes()
from helpers.made_reports import make
reports.write(make(differing=True), sys.argv[2])
assert before == (dict(matplotlib.rcParams), list(warnings.filters), random.getstate())
assert state == numpy.random.get_state(legacy=False)["state"]["key"].tobytes()
assert "matplotlib.pyplot" not in sys.modules
print(sorted(heavy))
"""
    found = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).resolve().parents[2]), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "MPLBACKEND": "TkAgg", "DISPLAY": ""},
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"
