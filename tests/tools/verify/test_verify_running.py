"""Starting the runs: in order, at once, ended together; what they leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.tiny_training import refused, tiny

from fastseed.tools import environment
from fastseed.tools.verify import audit_run, subprocesses
from fastseed.tools.verify.plan import plan
from fastseed.tools.verify.run_directory import opened

__all__ = ["tiny"]

ALL = ["whole-0", "half-0", "resumed-0", "unseeded-0"]
SLEEPER = (
    "import subprocess\n"
    "def sleeper(file, code='pass', **how):\n"
    "    code += ';import time; open(%r, \"w\").close(); time.sleep(100)' % (file + '-up')\n"
    "    child = subprocess.Popen([sys.executable, '-S', '-c', code], **how)\n"
    "    while not os.path.exists(file + '-up'): time.sleep(0.005)\n"
    "    with open(file, 'w') as out: out.write(str(child.pid))\n"
)


def is_there(pid: int) -> bool:
    """Whether a process runs; zombies do not."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


def is_gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while is_there(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not is_there(pid)


# ---------------------------------------------------------------- what is run


def test_four_experiments_in_order_with_totals(tiny):
    report = tiny.verify(runs=2)
    assert report.passed and report.verdict == "bit-identical", report.says
    second = [name.replace("0", "1") for name in ALL]
    assert tiny.ran() == [*ALL, *second]
    assert [run.name for run in report.runs] == [
        f"{name}-{k}" for name in ("whole", "half", "resumed", "unseeded") for k in (0, 1)
    ]
    assert [event.name for event in tiny.events[::2]] == [*ALL, *second]
    assert [event.what for event in tiny.events] == ["started", "done"] * 8
    done = [event.done for event in tiny.events if event.what == "done"]
    assert done == [1, 1.5, 2, 3, 4, 4.5, 5, 6]
    assert {event.total for event in tiny.events} == {6}
    assert all((event.seconds > 0) == (event.what == "done") for event in tiny.events)
    run = report.of("resumed")[1]
    assert run.folder == "runs/resumed-1" and run.curve.steps == ("2", "3")
    assert run.command[-2:] == ("--resume", str(tiny.run("resumed-1") / "checkpoint"))


def test_without_a_control_none_is_run(tiny):
    report = tiny.verify(control=False)
    assert tiny.ran() == ALL[:3] and report.bands.keys() == {"whole", "half", "resumed"}
    assert tiny.events[-1].done == tiny.events[-1].total == 2


def test_jobs_run_at_once(tiny):
    tiny.write(
        "open(os.path.join(here, name), 'w').close()\n"
        "until = time.monotonic() + 20\n"
        "while not all(os.path.exists(os.path.join(here, n)) for n in ('whole-0', 'half-0')):\n"
        "    assert time.monotonic() < until\n"
        "    time.sleep(0.01)\n"
    )
    assert tiny.verify(jobs=2).passed
    assert tiny.events[-1].done == 3
    done = [event.done for event in tiny.events]
    assert done == sorted(done)


def test_nothing_goes_through_a_shell(tiny):
    tiny.directory = tiny.folder / "a b\n;'\"$(touch pwned)`touch pwned`{seed} [x] *"
    tiny.write("with open(os.path.join(run, 'arguments'), 'w') as out: json.dump(sys.argv, out)")
    hostile = ["--x", "; touch pwned", "--y", "$(touch pwned)\n`touch pwned` '\" \x1b[31m"]
    assert tiny.verify(command=[*tiny.command, *hostile]).passed
    run = tiny.run("whole-0")
    assert json.loads((run / "arguments").read_text())[1:] == [
        str(run), str(run / "checkpoint"), "4", "--seed", "0", *hostile,
    ]  # fmt: skip
    assert not [*tiny.folder.rglob("pwned")] and not os.path.exists("pwned")


def test_what_runs_get_of_the_environment(tiny, monkeypatch):
    monkeypatch.setenv("FASTSEED_MASTER_SEED", "99")
    monkeypatch.setenv("PYTHONHASHSEED", "98")
    names = ("FASTSEED_MASTER_SEED", "PYTHONHASHSEED", "FASTSEED_RUN_DIR")
    tiny.write(
        f"with open(os.path.join(run, 'variables'), 'w') as out:\n"
        f"    json.dump([os.environ.get(n) for n in {names}] + [sys.stdin.read()], out)\n"
    )
    tiny.verify(seed=5)
    for name in ALL:
        seeds = [None, "random"] if name == "unseeded-0" else ["5", "5"]
        found = json.loads((tiny.run(name) / "variables").read_text())
        assert found == [*seeds, str(tiny.run(name)), ""]


# ---------------------------------------------------------------- runs that do not end well


def test_a_run_that_fails_shows_the_end_of_its_errors_and_what_is_done_is_kept(tiny):
    fails = tiny.folder / "fails"
    fails.touch()
    tiny.write(
        f"if name == 'resumed-0' and os.path.exists({str(fails)!r}):\n"
        "    sys.exit('\\n'.join(f'line {i}' for i in range(30)) + '\\x1b[31m')\n"
    )
    errors = tiny.run("resumed-0") / "stderr.txt"
    lines = "".join(f"\n  line {i}" for i in range(18, 30))
    assert refused(tiny, RuntimeError) == (
        "fastseed.tools.verify: run resumed-0 must end with exit code 0, got exit code 1; the end of "
        f"{errors}:{lines}\x1b[31m"
    )
    assert tiny.ran() == ALL[:3]
    fails.unlink()
    assert tiny.verify().passed
    assert tiny.ran() == ALL[2:]
    assert [event[:2] for event in tiny.events] == [
        ("whole-0", "kept"), ("half-0", "kept"), ("resumed-0", "started"), ("resumed-0", "done"),
        ("unseeded-0", "started"), ("unseeded-0", "done"),
    ]  # fmt: skip
    assert [event.done for event in tiny.events] == [1, 1.5, 1.5, 2, 2, 3]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("print('out'); sys.exit(7)", "got exit code 7; the end of {run}/stdout.txt:\n  out"),
        ("os._exit(7)", "got exit code 7; it printed nothing (in {run})"),
        ("os.kill(os.getpid(), 9)", "got exit code -9; it printed nothing (in {run})"),
        (
            "[os.remove(os.path.join(run, f)) for f in os.listdir(run)]; os._exit(7)",
            "got exit code 7; it printed nothing (in {run})",
        ),
        (
            "os.remove(run + '/stderr.txt'); os.mkfifo(run + '/stderr.txt'); print(1); sys.exit(7)",
            "got exit code 7; the end of {run}/stdout.txt:\n  1",
        ),
    ],
)
def test_how_runs_fail(tiny, code, says):
    tiny.write(code)
    says = says.format(run=tiny.run("whole-0"))
    assert refused(tiny, RuntimeError) == (
        f"fastseed.tools.verify: run whole-0 must end with exit code 0, {says}"
    )
    assert not (tiny.run("whole-0") / "run.json").exists()


def test_a_run_that_fails_ends_the_others(tiny):
    tiny.write(
        SLEEPER + "if name == 'half-0':\n    sleeper(os.path.join(here, 'pid')); time.sleep(100)\n"
        "while not os.path.exists(os.path.join(here, 'pid')): time.sleep(0.01)\n"
        "sys.exit(3)\n"
    )
    assert "run whole-0 must end with exit code 0, got exit code 3" in refused(
        tiny, RuntimeError, jobs=2
    )
    assert is_gone(int((tiny.folder / "pid").read_text()))
    assert sorted(tiny.ran()) == ["half-0", "whole-0"]


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("no such program", "got 'no such program': No such file or directory"),
        ("", "got ''"),
        ("FOLDER/", "Permission denied"),
        ("FOLDER/plain", "Permission denied"),
    ],
)
def test_a_program_that_cannot_be_started(tiny, program, says):
    (tiny.folder / "plain").touch()
    program = program.replace("FOLDER", str(tiny.folder))
    found = refused(tiny, RuntimeError, command=[program, *tiny.command[1:]])
    must = "fastseed.tools.verify: command must be a program that can be started, "
    assert found.startswith(must) and says in found


def test_a_time_out_ends_all_that_a_run_has_started(tiny, monkeypatch):
    """Those that ignore SIGTERM are killed."""
    monkeypatch.setattr(subprocesses, "GRACE", 0.2)
    tiny.write(
        SLEEPER + "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "default = 'import signal; signal.signal(15, signal.SIG_DFL)'\n"
        "sleeper(os.path.join(here, 'polite'), default)\n"
        "sleeper(os.path.join(here, 'deaf'))\n"
        "time.sleep(100)\n"
    )
    found = refused(tiny, RuntimeError, timeout=1)
    assert "run whole-0 must end with exit code 0, got none after 1 s; it printed nothing" in found
    for name in ("polite", "deaf"):
        assert is_gone(int((tiny.folder / name).read_text()))


def test_what_a_run_leaves_behind_is_ended(tiny):
    tiny.write(SLEEPER + "sleeper(os.path.join(run, 'pid'))\n")
    assert tiny.verify().passed
    for name in ALL:
        assert is_gone(int((tiny.run(name) / "pid").read_text()))


def test_a_daemon_holds_nobody_up(tiny):
    """It left the run's session with its output open, and cannot be told from others' processes."""
    tiny.write(SLEEPER + "sleeper(os.path.join(run, 'pid'), start_new_session=True)\n")
    try:
        assert tiny.verify().passed
    finally:
        pids = [int(path.read_text()) for path in tiny.directory.glob("runs/*/pid")]
        there = [is_there(pid) for pid in pids]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert there == [True] * 4


def test_a_daemon_holds_up_no_probe(tiny):
    """What stands in for Python here prints what `fastseed doctor` prints."""
    python = tiny.folder / "python3"
    finding = {"kind": "unseeded", "what": "a generator", "where": "/x/train.py:3"}
    python.write_text(
        f"#!{sys.executable} -S\nimport os, sys\n{SLEEPER}"
        "import json, time\n"
        f"sleeper({str(tiny.folder / 'pid')!r}, start_new_session=True)\n"
        f"print(json.dumps({{'findings': [{finding!r}], 'rows': []}}))\n"
    )
    python.chmod(0o755)
    tiny.write()
    asked = plan([str(python), *tiny.command[2:]], epochs=4)
    try:
        with opened(tiny.directory, asked, restart=False) as place:
            found, why = audit_run.probe(place, 60)
    finally:
        os.kill(int((tiny.folder / "pid").read_text()), signal.SIGKILL)
    assert why == "" and [one.where for one in found] == ["/x/train.py:3"]


@pytest.mark.parametrize(
    ("prints", "says"),
    [
        ("[]", "fastseed doctor did not end well in "),
        ('{"findings": [{"kind": [], "what": {}, "where": 3}]}', "did not end well"),
        ("[" * 100_000, "did not end well"),
        ("SLEEP", "draws were not watched: that takes more than 0.5 s"),
    ],
)
def test_a_probe_that_tells_nothing_is_a_note(tiny, prints, says):
    python = tiny.folder / "python3"
    does = "time.sleep(100)" if prints == "SLEEP" else f"print({prints!r})"
    python.write_text(f"#!{sys.executable} -S\nimport time\n{does}\n")
    python.chmod(0o755)
    tiny.write()
    asked = plan([str(python), *tiny.command[2:]], epochs=4)
    with opened(tiny.directory, asked, restart=False) as place:
        found, why = audit_run.probe(place, 0.5 if prints == "SLEEP" else 60)
    assert found == [] and says in why


def test_zombies_do_not_count_as_left_behind():
    """Where process 1 does not look after orphans, they stay in their group for ever."""
    code = "import time; time.sleep({})"
    dead, alive = (
        subprocess.Popen([sys.executable, "-S", "-c", code.format(s)], start_new_session=True)
        for s in (0, 100)
    )
    try:
        assert is_gone(dead.pid)
        os.killpg(dead.pid, 0)  # it has not been waited for: the group is there
        assert not subprocesses._has_more_than_zombies(dead.pid)
        assert subprocesses._has_more_than_zombies(alive.pid)
    finally:
        alive.kill()
        for one in (dead, alive):
            one.wait(10)


def test_all_are_ended_at_once(monkeypatch, tmp_path):
    """Three that ignore SIGTERM take one time of grace, and a second interrupt not even that."""
    monkeypatch.setattr(subprocesses, "GRACE", 60.0)
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True);"
        "time.sleep(100)"
    )
    deaf = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True
        )
        for _ in range(3)
    ]
    for one in deaf:
        assert one.stdout.readline() == b"1\n"
        one.stdout.close()
    looks = []

    def interrupted(_):
        looks.append(1)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocesses.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        subprocesses._end(deaf)
    monkeypatch.undo()
    assert [one.wait(10) for one in deaf] == [-signal.SIGKILL] * 3


def test_progress_that_raises_ends_the_verification(tiny):
    def progress(event):
        if event.name == "half-0":
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tiny.verify(progress=progress)
    assert tiny.ran() == ["whole-0"]


def test_an_environment_that_cannot_be_captured_is_a_note(tiny, monkeypatch):
    def fails(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(environment, "capture", fails)
    report = tiny.verify()
    assert report.passed and len(report.notes) == 1
    assert report.notes[0].startswith("the environment was not captured: [Errno 13]")
    assert tiny.verify(runs=2).passed
