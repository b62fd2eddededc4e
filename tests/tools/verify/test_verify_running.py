"""Starting the runs: in order, several at a time, ended together; their checkpoints and logs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

import pytest
from helpers.tiny_training import tiny

from fastseed.tools import environment
from fastseed.tools.verify import subprocesses

__all__ = ["tiny"]

ALL = ["uninterrupted-0", "truncated-0", "resumed-0", "unseeded-0"]
SLEEPER = (
    "import subprocess\n"
    "def sleeper(file, code='pass', **how):\n"
    "    code += ';import time; open(%r, \"w\").close(); time.sleep(100)' % (file + '-up')\n"
    "    child = subprocess.Popen([sys.executable, '-S', '-c', code], **how)\n"
    "    while not os.path.exists(file + '-up'): time.sleep(0.005)\n"
    "    with open(file, 'w') as out: out.write(str(child.pid))\n"
)


def is_running(pid: int) -> bool:
    """Return True if a process runs; zombies do not."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)


# ---------------------------------------------------------------- runs


def test_four_experiments_in_order(tiny):
    report = tiny.verify(runs=2)
    assert report.passed and report.verdict == "bit-identical", report.summary
    second = [name.replace("0", "1") for name in ALL]
    assert tiny.ran() == [*ALL, *second]
    names = [f"{name[:-2]}-{k}" for name in ALL for k in (0, 1)]
    assert [run.name for run in report.runs] == names
    assert [event.name for event in tiny.events[::2]] == [*ALL, *second]
    assert [event.what for event in tiny.events] == ["started", "done"] * 8
    done = [event.done for event in tiny.events if event.what == "done"]
    assert done == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {event.total for event in tiny.events} == {8}
    run = report.of("resumed")[1]
    assert run.folder == str(tiny.run("resumed-1")) and list(run.curve.values) == ["2", "3"]
    assert run.command[-2:] == ("--resume", str(tiny.run("resumed-1") / "checkpoint"))


def test_without_the_baseline(tiny):
    report = tiny.verify(baseline=False)
    assert tiny.ran() == ALL[:3] and report.of("unseeded") == ()
    assert tiny.events[-1].done == tiny.events[-1].total == 3


def test_jobs_run_at_a_time(tiny):
    tiny.write(
        "open(os.path.join(here, name), 'w').close()\n"
        "deadline = time.monotonic() + 20\n"
        "first = ('uninterrupted-0', 'truncated-0')\n"
        "while not all(os.path.exists(os.path.join(here, n)) for n in first):\n"
        "    assert time.monotonic() < deadline\n"
        "    time.sleep(0.01)\n"
    )
    assert tiny.verify(jobs=2).passed


def test_no_shell_and_the_variables_of_each_experiment(tiny, monkeypatch):
    monkeypatch.setenv("FASTSEED_MASTER_SEED", "99")
    monkeypatch.setenv("PYTHONHASHSEED", "98")
    tiny.directory = tiny.folder / "a b\n;'\"$(touch pwned)`touch pwned`{seed} [x] *"
    names = ("FASTSEED_MASTER_SEED", "PYTHONHASHSEED", "FASTSEED_RUN_DIR")
    tiny.write(
        f"with open(os.path.join(run, 'given'), 'w') as out:\n"
        f"    json.dump([os.environ.get(n) for n in {names}] + sys.argv, out)\n"
    )
    hostile = ["--x", "; touch pwned", "--y", "$(touch pwned)\n`touch pwned` '\" \x1b[31m"]
    assert tiny.verify(command=[*tiny.command, *hostile], seed=5).passed
    for name in ALL:
        found = json.loads((tiny.run(name) / "given").read_text())
        seeds = [None, "random"] if name == "unseeded-0" else ["5", "5"]
        assert found[:3] == [*seeds, str(tiny.run(name))] and found[-4:] == hostile
    assert not [*tiny.folder.rglob("pwned")] and not os.path.exists("pwned")


# ---------------------------------------------------------------- failures


def test_a_failed_run_shows_its_last_lines_and_finished_runs_are_kept(tiny):
    fails = tiny.folder / "fails"
    fails.touch()
    tiny.write(
        f"if name == 'resumed-0' and os.path.exists({str(fails)!r}):\n"
        "    sys.exit('\\n'.join(f'line {i}' for i in range(30)))\n"
    )
    lines = "".join(f"\n  line {i}" for i in range(18, 30))
    assert tiny.refused(RuntimeError) == (
        "fastseed.tools.verify: run resumed-0 ended with exit code 1; the end of "
        f"{tiny.run('resumed-0') / 'stderr.txt'}:{lines}"
    )
    assert tiny.ran() == ALL[:3]
    fails.unlink()
    assert tiny.verify().passed and tiny.ran() == ALL[2:]
    assert [event.what for event in tiny.events[:2]] == ["kept", "kept"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('out'); sys.exit(7)", "exit code 7; the end of {run}/stdout.txt:\n  out"),
        ("os.kill(os.getpid(), 9)", "exit code -9; it printed nothing (in {run})"),
        ("os.remove(run + '/stderr.txt'); os._exit(7)", "7; it printed nothing (in {run})"),
    ],
)
def test_errors_of_failed_runs(tiny, code, message):
    tiny.write(code)
    assert tiny.refused(RuntimeError).endswith(message.format(run=tiny.run("uninterrupted-0")))
    assert not (tiny.run("uninterrupted-0") / "run.json").exists()


def test_a_program_that_cannot_be_started(tiny):
    command = ["no such program", *tiny.command[1:]]
    assert tiny.refused(RuntimeError, command=command) == (
        "fastseed.tools.verify: 'no such program' cannot be started: No such file or directory"
    )


def test_a_failed_run_ends_the_others(tiny):
    tiny.write(
        SLEEPER + "pid = os.path.join(here, 'pid')\n"
        "if name == 'truncated-0':\n    sleeper(pid); time.sleep(100)\n"
        "while not os.path.exists(pid): time.sleep(0.01)\n"
        "sys.exit(3)\n"
    )
    assert "run uninterrupted-0 ended with exit code 3" in tiny.refused(RuntimeError, jobs=2)
    assert ends(int((tiny.folder / "pid").read_text()))


def test_a_timeout_ends_all_processes_of_a_run(tiny, monkeypatch):
    """Processes that ignore SIGTERM are killed."""
    monkeypatch.setattr(subprocesses, "GRACE", 0.2)
    tiny.write(
        SLEEPER + "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "default = 'import signal; signal.signal(15, signal.SIG_DFL)'\n"
        "sleeper(os.path.join(here, 'polite'), default)\n"
        "sleeper(os.path.join(here, 'deaf'))\n"
        "time.sleep(100)\n"
    )
    found = tiny.refused(RuntimeError, timeout=2)
    assert "run uninterrupted-0 did not end within 2.0 seconds; it printed nothing" in found
    for name in ("polite", "deaf"):
        assert ends(int((tiny.folder / name).read_text()))


def test_processes_that_a_run_leaves_behind(tiny):
    """They are ended, except daemons, which do not delay the verification."""
    tiny.write(
        SLEEPER + "sleeper(os.path.join(run, 'child'))\n"
        "name == 'truncated-0' and sleeper(os.path.join(run, 'daemon'), start_new_session=True)\n"
    )
    try:
        assert tiny.verify(baseline=False).passed
    finally:
        daemon = int((tiny.run("truncated-0") / "daemon").read_text())
        survived = is_running(daemon)
        os.kill(daemon, signal.SIGKILL)
    assert survived
    assert all(ends(int((tiny.run(name) / "child").read_text())) for name in ALL[:3])


def test_a_second_interrupt_kills_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(subprocesses, "GRACE", 60.0)
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print(os.getpid(), flush=True); time.sleep(100)"
    )
    command = (sys.executable, "-S", "-c", code)
    process = subprocesses.Process("x", "x-0", command, os.environ, tmp_path, None)
    while not (pid := (tmp_path / "stdout.txt").read_text()):
        time.sleep(0.01)
    waited = process.wait_at_most

    def interrupted(seconds):
        monkeypatch.setattr(process, "wait_at_most", waited)
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "wait_at_most", interrupted)
    with pytest.raises(KeyboardInterrupt):
        subprocesses.end([process])
    assert not is_running(int(pid))


def test_an_error_in_progress_ends_the_verification(tiny):
    def progress(event):
        if event.name == "truncated-0":
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tiny.verify(progress=progress)
    assert tiny.ran() == ["uninterrupted-0"]


def test_an_environment_that_cannot_be_captured_is_a_note(tiny, monkeypatch):
    def fails(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(environment, "capture", fails)
    report = tiny.verify()
    assert report.passed and report.notes[0].startswith("the environment was not captured: [Errno")


# ---------------------------------------------------------------- checkpoints and logs

CHECKPOINTS = {
    "folder": (
        "load(options['--resume'] + '/deep/state')",
        "os.makedirs(checkpoint + '/deep', exist_ok=True);"
        "save(checkpoint + '/deep/state', [int(epochs), value])",
    ),
    "several": (
        "[load(options['--resume'] + '.a'), load(options['--resume'] + '-b')]",
        "save(checkpoint + '.a', int(epochs)); save(checkpoint + '-b', value)",
    ),
    "links": (
        "load(options['--resume'] + '/last')",
        "os.makedirs(checkpoint, exist_ok=True); save(checkpoint + '/0', [int(epochs), value]);"
        "os.path.lexists(checkpoint + '/last') or "
        "os.symlink(checkpoint + '/0', checkpoint + '/last')",
    ),
}  # fmt: skip
SAVE = """\
def load(path):
    with open(path) as file: return json.load(file)
def save(path, value):
    with open(path, "w") as file: json.dump(value, file)
begin, value = 0, int(options.get("--seed", int.from_bytes(os.urandom(4), "big")))
if "--resume" in options: begin, value = LOAD
for step in range(begin, int(epochs)):
    value = (value * 48271 + 11) % 2147483647
    print(json.dumps({"step": step, "loss": value / 7}))
SAVE
sys.exit()
"""


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_checkpoints_are_copied(tiny, kind):
    load, save = CHECKPOINTS[kind]
    tiny.write(SAVE.replace("LOAD", load).replace("SAVE", save))
    report = tiny.verify()
    assert report.passed, report.summary
    name = {"folder": "checkpoint/deep/state", "several": "checkpoint.a", "links": "checkpoint/0"}
    saved = (tiny.run("truncated-0") / name[kind]).read_text()
    assert saved.lstrip("[").startswith("2")  # not overwritten by the resumed run


def test_a_missing_checkpoint(tiny):
    tiny.write(end="os.remove(checkpoint)")
    assert "run truncated-0 wrote no checkpoint to {checkpoint}" in tiny.refused(RuntimeError)


LOG = "sys.stdout = open(os.path.join(run, {!r}), 'w')"


@pytest.mark.parametrize(
    ("written", "log"), [("log[1] *.jsonl", "log[1] *.jsonl"), ("a.jsonl", "*.jsonl")]
)
def test_logs_by_name_and_pattern(tiny, written, log):
    tiny.write(LOG.format(written), end="sys.stdout.close(); sys.stdout = sys.__stdout__")
    assert tiny.verify(log=log).passed


def test_logs_that_are_missing_or_ambiguous(tiny):
    tiny.write("open(run + '/a.jsonl', 'w'); open(run + '/b.jsonl', 'w')\nos.mkfifo(run + '/pipe')")
    for log, message in (
        ("log.jsonl", "which matches 0 paths in uninterrupted-0, with the files a.jsonl, b.jsonl,"),
        ("*.jsonl", "got '*.jsonl', which matches 2 paths"),
        ("pipe", "log must be one file below {run}"),
    ):
        assert message in tiny.refused(log=log)
    # Another log may be read without running again.
    assert tiny.verify().passed and tiny.ran() == ALL


def test_a_log_without_losses_names_the_run_at_once(tiny):
    tiny.write('print(\'{"step": 0, "accuracy": 1}\'); sys.exit()')
    assert str(tiny.run("uninterrupted-0")) in tiny.refused()
    assert tiny.ran() == ["uninterrupted-0"]


def test_a_resumed_run_that_restarts_differs(tiny):
    tiny.write("json.load = lambda file: [0, 5]")
    report = tiny.verify()
    assert not report.passed and not report.checks[2].passed
    assert " at step 0: " in report.checks[2].message
