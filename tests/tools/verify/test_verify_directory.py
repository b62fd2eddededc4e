"""The run directory: runs that are kept, run again, or refused."""

from __future__ import annotations

import os

import pytest
from helpers.tiny_training import tiny

__all__ = ["tiny"]

ALL = ["uninterrupted-0", "truncated-0", "resumed-0", "unseeded-0"]


def listing(folder) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def test_existing_runs_are_kept_and_more_can_be_added(tiny):
    first = tiny.verify()
    tiny.ran()
    assert tiny.verify().runs[0].seconds == first.runs[0].seconds
    assert tiny.ran() == [] and {event.what for event in tiny.events} == {"kept"}
    assert len(tiny.verify(runs=2).runs) == 8
    assert tiny.ran() == [name.replace("0", "1") for name in ALL]
    assert len(tiny.verify(runs=2, baseline=False).runs) == 6
    assert tiny.ran() == []


def test_only_missing_runs_are_run(tiny):
    tiny.verify()
    tiny.ran()
    (tiny.run("uninterrupted-0") / "run.json").unlink()
    (tiny.run("uninterrupted-0") / "old").touch()
    (tiny.run("resumed-0") / "run.json").unlink()
    assert tiny.verify().passed and tiny.ran() == ["uninterrupted-0", "resumed-0"]
    assert not (tiny.run("uninterrupted-0") / "old").exists()


def test_a_new_truncated_run_makes_its_resumed_run_again(tiny):
    """Even if the session ends between the two."""
    tiny.verify()
    tiny.ran()
    (tiny.run("truncated-0") / "run.json").unlink()

    def progress(event):
        if event[:2] == ("truncated-0", "done"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.verify(progress=progress)
    assert tiny.ran() == ["truncated-0"]
    assert tiny.verify().passed and tiny.ran() == ["resumed-0"]


def test_runs_with_other_options_are_refused(tiny):
    tiny.verify()
    before = listing(tiny.directory)
    for change in (
        {"seed": 1},
        {"epochs": 6},
        {"deterministic": True},
        {"command": [*tiny.command[:-1], "{run}", "]"]},
    ):
        (name,) = change
        assert f"{name} must be that of the existing runs: use another" in tiny.refused(**change)
    assert listing(tiny.directory) == before


def test_a_script_that_changed_is_refused(tiny):
    config = tiny.folder / "config.json"
    config.write_text("{}")
    command = [*tiny.command, f"--config={config}"]
    tiny.write("sys.argv.pop(); rest.pop()")
    assert tiny.verify(command=command).passed
    config.write_text("{ }")
    assert "files must be that of the existing runs" in tiny.refused(command=command)


@pytest.mark.parametrize(("name", "text"), [("mine", "x"), ("options.json", "{"), ("x/x", "x")])
def test_folders_of_something_else_are_refused(tiny, name, text):
    path = tiny.directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    before = listing(tiny.directory)
    assert tiny.refused().startswith("fastseed.tools.verify: ")
    assert listing(tiny.directory) == before


def test_huge_options_are_refused(tiny):
    tiny.directory.mkdir()
    (tiny.directory / "options.json").touch()
    os.truncate(tiny.directory / "options.json", 10 << 30)
    assert "options.json' must be a file of at most 67108864 bytes: remove it" in tiny.refused()


def test_a_file_is_not_a_directory(tiny):
    tiny.directory.write_text("mine")
    assert "directory must be a new or empty folder, or that of a verification" in tiny.refused()
    assert tiny.directory.read_text() == "mine"


def test_a_damaged_record_is_named(tiny):
    tiny.verify()
    tiny.ran()
    (tiny.run("uninterrupted-0") / "run.json").write_text("[")
    path = str(tiny.run("uninterrupted-0") / "run.json")
    assert tiny.refused().startswith(
        f"fastseed.tools.verify: {path!r} must be a whole JSON document"
    )
    assert tiny.ran() == []
