"""The run directory: runs that are kept, run again, or refused."""

from __future__ import annotations

import json
import os

import pytest
from helpers.tiny_training import tiny

from fastseed.tools.verify.run_directory import open_directory

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
    assert len(tiny.verify(runs=2, baseline=False, require="variance").runs) == 6
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


def test_a_record_written_by_another_run_is_not_used(tiny):
    forged = {"format": 1, "name": "unseeded-0", "command": ["x"], "files": {}, "seconds": 1.0}
    tiny.write(
        "if name == 'uninterrupted-0':\n"
        "    os.mkdir(run + '/../unseeded-0')\n"
        f"    with open(run + '/../unseeded-0/run.json', 'w') as out: json.dump({forged}, out)\n"
    )
    assert tiny.verify().passed and tiny.ran() == ALL


def test_restart_discards_the_runs(tiny):
    tiny.verify()
    os.rename(tiny.directory / "runs", tiny.folder / "moved")
    (tiny.directory / "runs").symlink_to(tiny.folder / "moved")
    before = listing(tiny.folder / "moved")
    tiny.ran()
    assert tiny.verify().passed and tiny.ran() == []
    assert tiny.verify(restart=True, seed=3).passed and tiny.ran() == ALL
    assert listing(tiny.folder / "moved") == before  # the link was removed, not its target
    assert json.loads((tiny.directory / "options.json").read_text())["options"]["seed"] == 3
    assert [path.name for path in (tiny.directory / "sessions").iterdir()] == ["0"]


def test_runs_with_other_options_are_refused(tiny):
    tiny.verify()
    before = listing(tiny.directory)
    for change, message in (
        ({"seed": 1}, "seed must be 0, as for the existing runs, got 1: restart, or use another"),
        ({"epochs": 6}, "epochs must be 4, as for the existing runs, got 6"),
        ({"deterministic": "warn"}, "deterministic must be False, as for the existing runs"),
        ({"command": [*tiny.command[:-1], "{run}", "]"]}, "command[12] must be ']', as for"),
    ):
        assert message in tiny.refused(**change)
    assert listing(tiny.directory) == before


def test_a_script_that_changed_is_refused(tiny):
    config = tiny.folder / "config.json"
    config.write_text("{}")
    command = [*tiny.command, f"--config={config}"]
    tiny.write("sys.argv.pop(); rest.pop()")
    assert tiny.verify(command=command).passed
    config.write_text("{ }")
    message = f"fastseed.tools.verify: {config} has changed since run uninterrupted-0: restart"
    assert tiny.refused(command=command).startswith(message)
    tiny.write("rest.pop(); open(sys.argv.pop().partition('=')[2], 'a').write(' ')")
    report = tiny.verify(command=command, restart=True)
    assert f"{config} changed during the verification" in report.notes


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [("mine", "x"), ("options.json", "{}"), ("options.json", "\xff"), ("options.json/x", "x")],
)
def test_folders_of_something_else_are_refused(tiny, name, text, restart):
    path = tiny.directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="latin-1")
    before = listing(tiny.directory)
    assert tiny.refused(restart=restart).startswith("fastseed.tools.verify: ")
    assert listing(tiny.directory) == before


def test_a_file_is_not_a_directory(tiny):
    tiny.directory.write_text("mine")
    assert "directory must be a new or empty folder, or that of a verification" in tiny.refused()
    assert tiny.directory.read_text() == "mine"


RECORD = {"format": 1, "name": "x", "command": ["x"], "files": {}, "seconds": 1.0}


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        *(
            json.dumps({**RECORD, **change}).encode()
            for change in ({"format": 2}, {"files": [1]}, {"seconds": "x"}, {"command": None})
        ),
    ],
)
def test_damaged_records_are_refused(tiny, record):
    tiny.write()
    with open_directory(tiny.options()) as directory:
        (directory.start("uninterrupted-0") / "run.json").write_bytes(record)
    path = str(tiny.run("uninterrupted-0") / "run.json")
    assert tiny.refused().startswith(
        f"fastseed.tools.verify: {path!r} is not a file of a verification ("
    )
    assert tiny.ran() == []
    assert tiny.verify(restart=True).passed


def test_one_process_at_a_time(tiny):
    pytest.importorskip("fcntl")
    tiny.write()
    with open_directory(tiny.options()):
        assert "another process uses " in tiny.refused(RuntimeError)
    assert tiny.verify().passed
