"""The run directory: what is kept, what is run again, what is refused and left alone."""

from __future__ import annotations

import json
import os

import pytest
from helpers.tiny_training import refused, tiny

from fastseed.tools.verify.plan import plan
from fastseed.tools.verify.run_directory import RunDirectory, opened

__all__ = ["tiny"]

ALL = ["whole-0", "half-0", "resumed-0", "unseeded-0"]


def listing(folder) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


# ---------------------------------------------------------------- going on


def test_what_is_there_is_not_run_again_and_more_runs_may_be_asked_for(tiny):
    first = tiny.verify()
    tiny.ran()
    assert tiny.verify().runs[0].seconds == first.runs[0].seconds
    assert tiny.ran() == [] and {event.what for event in tiny.events} == {"kept"}
    assert len(tiny.verify(runs=3).runs) == 12
    assert tiny.ran() == [name.replace("0", k) for k in "12" for name in ALL]
    assert len(tiny.verify(runs=2, control=False, require="variance").runs) == 6
    assert tiny.ran() == []


def test_only_what_is_missing_is_run(tiny):
    tiny.verify()
    tiny.ran()
    (tiny.run("whole-0") / "run.json").unlink()
    (tiny.run("resumed-0") / "run.json").unlink()
    assert tiny.verify().passed and tiny.ran() == ["whole-0", "resumed-0"]


def test_a_half_run_that_is_made_again_makes_its_resumed_one_again(tiny):
    tiny.verify(runs=2)
    tiny.ran()
    (tiny.run("half-1") / "run.json").unlink()
    assert tiny.verify(runs=2).passed and tiny.ran() == ["half-1", "resumed-1"]


def test_even_when_the_session_ends_between_the_two(tiny):
    tiny.verify()
    tiny.ran()
    (tiny.run("half-0") / "run.json").unlink()

    def progress(event):
        if event[:2] == ("half-0", "done"):
            raise KeyboardInterrupt  # stands in for any end

    with pytest.raises(KeyboardInterrupt):
        tiny.verify(progress=progress)
    assert tiny.ran() == ["half-0"]
    assert tiny.verify().passed and tiny.ran() == ["resumed-0"]


def test_leftovers_of_a_run_that_did_not_end_are_removed(tiny):
    for name, make in (("whole-0", "mkdir"), ("half-0", "touch")):
        path = tiny.run(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        getattr(path, make)()
    (tiny.run("whole-0") / "old").touch()
    (tiny.folder / "elsewhere").mkdir()
    (tiny.folder / "elsewhere" / "mine").touch()
    tiny.run("resumed-0").symlink_to(tiny.folder / "elsewhere")
    tiny.write()
    (tiny.directory / "plan.json").write_text(
        json.dumps({"format": 1, "plan": plan(tiny.command, epochs=4).document()})
    )
    assert tiny.verify().passed
    assert not (tiny.run("whole-0") / "old").exists()
    assert [path.name for path in (tiny.folder / "elsewhere").iterdir()] == ["mine"]


def test_a_run_that_writes_where_others_are_is_not_taken_for_them(tiny):
    """Neither what it calls the record of one, nor files in a folder of one that comes later."""
    forged = {"format": 1, "name": "unseeded-0", "command": ["x"], "files": {}, "seconds": 1.0}
    tiny.write(
        "if name == 'whole-0':\n"
        "    for other in ('half-0', 'unseeded-0'):\n"
        "        os.mkdir(run + '/../' + other)\n"
        "        open(run + '/../' + other + '/checkpoint-planted', 'w').close()\n"
        f"    with open(run + '/../unseeded-0/run.json', 'w') as out: json.dump({forged}, out)\n"
    )
    assert tiny.verify().passed and tiny.ran() == ALL
    assert not [*tiny.directory.rglob("checkpoint-planted")]


def test_restart_throws_the_runs_away(tiny):
    tiny.verify()
    tiny.ran()
    tiny.verify(restart=True, seed=3, runs=1)
    assert tiny.ran() == ALL
    assert json.loads((tiny.directory / "plan.json").read_text())["plan"]["seed"] == 3
    assert [path.name for path in (tiny.directory / "sessions").iterdir()] == ["0"]


def test_restart_follows_no_link(tiny):
    tiny.verify()
    os.rename(tiny.directory / "runs", tiny.folder / "moved")
    (tiny.directory / "runs").symlink_to(tiny.folder / "moved")
    before = listing(tiny.folder / "moved")
    tiny.ran()
    assert tiny.verify().passed and tiny.ran() == []
    assert tiny.verify(restart=True).passed and tiny.ran() == ALL
    assert listing(tiny.folder / "moved") == before


# ---------------------------------------------------------------- what is not gone on with


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 1}, "seed must be that of the runs in the directory, 0, got 1"),
        ({"epochs": 6}, "epochs must be that of the runs in the directory, 4, got 6"),
        (
            {"deterministic": "warn"},
            "deterministic must be that of the runs in the directory, False, got 'warn'",
        ),
    ],
)
def test_another_plan_is_refused(tiny, change, says):
    tiny.verify()
    before = listing(tiny.directory)
    assert refused(tiny, **change) == (
        f"fastseed.tools.verify: {says}: restart, or give another directory"
    )
    found = refused(tiny, command=[*tiny.command, "x"])
    assert found == (
        "fastseed.tools.verify: command must be that of the runs in the directory, with nothing at "
        f"{len(tiny.command)}, got 'x': restart, or give another directory"
    )
    found = refused(tiny, command=[tiny.command[0], "x", *tiny.command[2:]])
    assert f"directory, with {tiny.command[1]!r} at 1, got 'x': restart" in found
    assert listing(tiny.directory) == before


@pytest.mark.parametrize("option", ["{}", "--config={}"])
def test_a_file_of_the_command_that_was_changed_is_refused(tiny, option):
    config = tiny.folder / "config"
    config.write_text("a")
    tiny.write("options = dict(zip(rest[1::2], rest[2::2]))")
    command = [*tiny.command[:6], option.format(config), *tiny.command[6:]]
    tiny.verify(command=command)
    tiny.ran()
    config.write_text("b")
    assert refused(tiny, command=command) == (
        "fastseed.tools.verify: directory must hold runs of the files that are there now, but "
        f"{config} has changed since whole-0: restart, or give another directory"
    )
    config.write_text("a")
    assert tiny.verify(command=command).passed and tiny.ran() == []


def test_a_script_that_changes_meanwhile_is_a_note(tiny):
    tiny.write("open(__file__, 'a').write('#\\n')")
    report = tiny.verify()
    assert report.notes == (f"{tiny.folder / 'train.py'} changed while it was verified",)


def test_one_process_at_a_time(tiny):
    tiny.write()
    with opened(tiny.directory, plan(tiny.command, epochs=4), restart=False):
        found = refused(tiny, RuntimeError)
    assert found.startswith(
        "fastseed.tools.verify: directory must be used by one process at a time, and another is at work "
    )
    assert found.endswith(": wait for it")
    assert tiny.verify().passed


def test_a_session_that_ended_before_it_wrote_its_plan_is_no_foreign_folder(tiny):
    tiny.directory.mkdir()
    (tiny.directory / "lock").touch()
    (tiny.directory / "plan.partial").touch()
    assert tiny.verify().passed


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    "there",
    [
        {"mine.txt": "x"},
        {"runs/whole-0/run.json": "{}"},
        {"plan.json": "{}"},
        {"plan.json": '{"format": 1}', "runs/mine": "x"},
        {"plan.json": '{"format": 1, "plan": []}', "runs/mine": "x"},
        {"plan.json": '{"format": 1, "plan": {"steps": 3}}', "runs/mine": "x"},
        {"plan.json": '{"format": 2, "plan": {}}'},
        {"plan.json": "[" * 100_000},
        {"plan.json": '{"format": ' + "1" * 5000 + "}"},
        {"plan.json": "\x00\xff"},
        {"plan.json/x": "x"},
    ],
)
def test_foreign_folders_are_refused_and_left_alone(tiny, there, restart):
    for name, text in there.items():
        path = tiny.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="latin-1")
    before = listing(tiny.directory)
    assert refused(tiny, restart=restart).startswith("fastseed.tools.verify: ")
    assert listing(tiny.directory) == before


def test_a_directory_that_is_none(tiny):
    tiny.directory.write_text("mine")
    assert "fastseed.tools.verify: directory must be a folder, got" in refused(tiny)
    assert tiny.directory.read_text() == "mine"


RECORD = {"format": 1, "name": "whole-0", "command": ["x"], "files": {}, "seconds": 1.0}


@pytest.mark.parametrize(
    "record",
    [
        b"", b"{", b"\xff", b"[]", b"null", b"{}", b"[" * 100_000,
        *(
            json.dumps({**RECORD, **change}).encode()
            for change in (
                {"format": 2}, {"name": "whole-1"}, {"command": "x"}, {"command": [3]},
                {"files": []}, {"seconds": "1"}, {"seconds": -1.0}, {"seconds": float("nan")},
                {"seconds": None}, {"files": None}, {"command": None},
            )
        ),
    ],
)  # fmt: skip
def test_damaged_records_are_refused(tiny, record):
    tiny.write()
    with opened(tiny.directory, plan(tiny.command, epochs=4), restart=False) as place:
        (place.begin("whole-0") / "run.json").write_bytes(record)
    found = refused(tiny)
    assert found.startswith(
        f"fastseed.tools.verify: {str(tiny.run('whole-0') / 'run.json')!r} must be "
    )
    assert tiny.ran() == []
    assert tiny.verify(restart=True).passed


def test_a_directory_that_is_a_link(tiny):
    (tiny.folder / "real").mkdir()
    tiny.directory.symlink_to(tiny.folder / "real")
    assert tiny.verify().passed
    assert (tiny.folder / "real" / "plan.json").exists() and tiny.directory.is_symlink()


def test_sessions_are_folders_of_plain_digits(tiny):
    tiny.verify()
    for name in ("²", "٣", "-1", "x", "9" * 30):
        (tiny.directory / "sessions" / name).mkdir()
    (tiny.directory / "sessions" / "7").touch()
    place = RunDirectory(tiny.directory, plan(tiny.command, epochs=4))
    assert [one.name for one in place.sessions()] == ["0"]
    assert tiny.verify(runs=2).passed
    assert [one.name for one in place.sessions()] == ["0", "1"]


def test_real_captures_are_compared_and_damaged_ones_are_a_note(tiny, monkeypatch):
    monkeypatch.undo()
    tiny.verify(control=False)
    assert tiny.verify(runs=2, control=False).notes == ()
    (capture,) = [one for one in (tiny.directory / "sessions" / "0").iterdir() if one.is_file()][:1]
    capture.write_text('{"format": []}')
    report = tiny.verify(runs=2, control=False)
    assert report.passed and report.environment == ()
    assert report.notes[0].startswith("the environments were not compared: ")
