"""Captures that are damaged, foreign or not there: an error that names the file."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from fastseed.cli import main
from fastseed.tools import environment
from fastseed.tools.environment import schema, storage


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """A capture of this process, in a folder."""
    path = tmp_path_factory.mktemp("captured") / "c"
    environment.capture(path, patches=False)
    return path


@pytest.fixture
def copy(captured, tmp_path):
    """A copy of it that a test may damage."""
    return shutil.copytree(captured, tmp_path / "copy")


def rewrite(path, change):
    """Change the document and put its checksum right."""
    file = path / "environment.json"
    found = json.loads(file.read_text())
    change(found)
    if isinstance(found.get("sections"), dict):
        found["sha256"] = schema.digest(found["sections"])
    file.write_text(json.dumps(found))


def replaced(text):
    """A document with this text (or bytes) in its place."""

    def damage(path):
        data = text.encode() if isinstance(text, str) else text
        (path / "environment.json").write_bytes(data)

    return damage


def changed(change):
    """A document of which something was changed, with the right checksum."""
    return lambda path: rewrite(path, change)


def cut(path):
    text = (path / "environment.json").read_text()
    (path / "environment.json").write_text(text[:999])


def edited(path):
    text = (path / "environment.json").read_text()
    (path / "environment.json").write_text(text.replace('"cudnn": ', '"cudnn2": '))


def linked(path):
    (path / "environment.json").rename(path / "e")
    (path / "environment.json").symlink_to("e")


def piped(path):
    (path / "environment.json").unlink()
    os.mkfifo(path / "environment.json")


def infinite(at, number):
    """A number that is JSON and none once it is read."""

    def damage(path):
        text = (path / "environment.json").read_text()
        assert at in text
        (path / "environment.json").write_text(text.replace(at, number, 1))

    return damage


NESTED = json.loads('{"a":' * 50 + "1" + "}" * 50)
DAMAGES = {
    "empty": replaced(""),
    "cut": cut,
    "binary": replaced(b"\xff\xfe\0"),
    "gone": lambda path: (path / "environment.json").unlink(),
    "foreign": replaced('{"name": "x"}'),
    "a list": replaced("[]"),
    "NaN": replaced('{"format": NaN}'),
    "infinite": infinite('"sections": {', '"sections": {"more": {"x": 1e999},'),
    "infinite header": infinite('"captured": {', '"captured": {"x": 1e999,'),
    "problems": changed(lambda d: d["captured"].update(problems=5)),
    "twice": replaced('{"format": 1, "format": 2}'),
    "deep": replaced("[" * 100000),
    "nested": changed(lambda d: d["sections"].update(x=NESTED)),
    "newer": changed(lambda d: d.update(version=2)),
    "true": changed(lambda d: d.update(version=True)),
    "no sections": changed(lambda d: d.pop("sections")),
    "section": changed(lambda d: d["sections"].update(torch=[])),
    "leaving": changed(lambda d: d["patches"].update({"../../x.diff": ""})),
    "no patch": changed(lambda d: d["patches"].update({"x.diff": ""})),
    "edited": edited,
    "a link": linked,
    "a pipe": piped,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_capture_says_what_is_wrong_with_which_file(copy, damage, capsys):
    DAMAGES[damage](copy)
    with pytest.raises(ValueError, match=r"^fastseed.tools.environment.load: '.*' must be "):
        environment.load(copy)
    assert main(["env", "show", str(copy)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "Traceback" not in shown.err


def test_a_capture_that_somebody_made_is_compared_and_shown(tmp_path, capsys):
    """A checksum proves nothing of who wrote it."""
    for name, files in (("a", 5), ("b", [1])):
        many = [f"{name}{i}" for i in range(20_000)]  # each looked up in the other: no squares
        made = {"git": {"diff": {"files": files}}, "torch": {"k" * 10_000: "x", "many": many}}
        storage.write("f", tmp_path / name, environment.Capture({}, made, {}), False)
    assert main(["env", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert main(["env", "show", str(tmp_path / "a")]) == 0
    shown = capsys.readouterr()
    assert max(map(len, shown.out.splitlines())) < 1000 and "Traceback" not in shown.err


def test_a_damaged_patch_is_noticed(tmp_path):
    storage.write("f", tmp_path / "c", environment.Capture({}, {}, {"a.diff": "text"}), False)
    assert environment.load(tmp_path / "c").patches == {"a.diff": "text"}
    (tmp_path / "c" / "patches" / "a.diff").write_text("other")
    with pytest.raises(ValueError, match="checksum differs"):
        environment.load(tmp_path / "c")


def test_no_capture_at_all(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "gone", tmp_path / "empty"):
        with pytest.raises(ValueError, match=r"fastseed.tools.environment.diff: "):
            environment.diff(path, path)
    with pytest.raises(TypeError):
        environment.load(7)
