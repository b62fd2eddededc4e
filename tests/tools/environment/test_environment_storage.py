"""The folder of a capture: new, in use, damaged."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from fastseed.cli import main
from fastseed.tools import environment

CAPTURE = environment.Capture({"at": "now", "problems": []}, {"torch": {"version": "2"}}, {})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of a capture that a test may damage."""
    monkeypatch.setattr(environment, "collect", lambda patches: CAPTURE)
    environment.capture(tmp_path / "c")
    return tmp_path / "c"


def test_only_the_owner_has_access(folder):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["environment.json"]
    assert environment.load(folder) == CAPTURE


def test_a_folder_in_use_is_not_changed(tmp_path, folder):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "full", folder):
        with pytest.raises(
            ValueError, match=r"fastseed.tools.environment.capture: directory must be a"
        ):
            environment.capture(path)
    assert (tmp_path / "file").read_text() == (tmp_path / "full" / "thesis.txt").read_text()
    assert environment.load(folder) == CAPTURE


def edited(old, new):
    return lambda file: file.write_text(file.read_text().replace(old, new))


def piped(file):
    file.unlink()
    os.mkfifo(file)


DAMAGES = {
    "empty": lambda file: file.write_text(""),
    "truncated": lambda file: file.write_text(file.read_text()[:99]),
    "binary": lambda file: file.write_bytes(b"\xff\xfe\0"),
    "missing": lambda file: file.unlink(),
    "other": lambda file: file.write_text('{"name": "x"}'),
    "list": lambda file: file.write_text("[]"),
    "deep": lambda file: file.write_text("[" * 100_000),
    "newer": edited('"version": 1', '"version": 2'),
    "no sections": edited('"sections"', '"x"'),
    "pipe": piped,
    "huge": lambda file: os.truncate(file, 10 << 30),
    "NaN": edited('"2"', "NaN"),
    "deep section": edited('"2"', "[" * 100 + "]" * 100),
    "patches": edited('"patches": {}', '"patches": {"git": 5}'),
    "patch": edited('"patches": {}', r'"patches": {"git": "\ud800"}'),
    "header": edited('"now"', '"now"}, "captured": 5, "x": {"y": 1'),
    "sections": edited('"torch": {', '"torch": 3, "x": {'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_capture_is_an_error_that_names_the_file(folder, damage, capsys):
    DAMAGES[damage](folder / "environment.json")
    with pytest.raises(ValueError, match=r"^fastseed.tools.environment.load: .* must be a "):
        environment.load(folder)
    assert main(["env", "show", str(folder), "--patch", "git"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "environment.json" in shown.err and "Traceback" not in shown.err


def test_patch_is_printed_as_bytes_and_to_a_terminal_without_control_characters(
    tmp_path, monkeypatch, capsysbinary
):
    patch = "+\x1b]0;title\x07\udcff\r\n"
    capture = environment.Capture({"at": "now", "problems": []}, {}, {"git": patch})
    monkeypatch.setattr(environment, "collect", lambda patches: capture)
    environment.capture(tmp_path / "c")
    show = ["env", "show", str(tmp_path / "c"), "--patch", "git"]
    assert main(show) == 0
    assert capsysbinary.readouterr().out == b"+\x1b]0;title\x07\xff\r\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(show) == 0
    assert capsysbinary.readouterr().out == b"+\\x1b]0;title\\x07\\udcff\\r\n"


def test_missing_folders(tmp_path):
    for path in (tmp_path / "gone", tmp_path):
        with pytest.raises(ValueError, match=r"fastseed.tools.environment.load: directory must be"):
            environment.diff(path, path)
    with pytest.raises(TypeError, match="directory must be a path, got 7"):
        environment.load(7)
