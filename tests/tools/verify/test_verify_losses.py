"""Reading losses from logs: steps, and what is left out."""

import contextlib
import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.processes import clean_environment
from hypothesis import given, settings
from hypothesis import strategies as st

from fastseed.cli import exit_codes
from fastseed.cli import verify as command
from fastseed.tools.verify import comparison, processes, verify
from fastseed.tools.verify.comparison import _compare_losses, _with_recordings
from fastseed.tools.verify.processes import run_program
from fastseed.tools.verify.runs import Losses, Run, kill_points, printed, read_losses


@pytest.fixture
def read(tmp_path):
    """Write rows, objects or lines, and return what is read of them."""

    def read(*rows, value="loss"):
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (tmp_path / "log").write_text("".join(f"{line}\n" for line in lines))
        return read_losses(tmp_path / "log", value)

    return read


def bits(values):
    return [struct.pack("<d", value) for value in values]


def test_json_lines_among_other_output(read):
    rows = {"step": 1, "loss": 0.5}, {"step": 1, "lr": 1}, {"step": 2, "loss": None}
    assert read("starting", *rows, "loss {x}", "[1]", {"step": 3, "loss": 2}) == (
        {"1": 0.5, "3": 2.0},
        0,
    )
    assert read({"step": 1, "train/loss": 2}, value="train/loss").values == {"1": 2}
    assert read("loss: 0.5").values == {}


def test_lines_that_are_left_out_are_counted(read):
    wrong = ["abc", "0,5", [1.0], {"a": 1}, 10**400]
    rows = [{"step": i, "loss": value} for i, value in enumerate(wrong)]
    assert read(*rows, {"loss": 3}, '{"step": 2, "lo', "{" * 100_000, {"step": 9, "loss": 1}) == (
        {"9": 1},
        8,
    )


def test_steps_have_their_epoch_if_rows_have_one(read):
    rows = [{"epoch": e, "step": s, "loss": e + s / 10} for e in range(2) for s in range(2)]
    assert [*read(*rows).values] == ["0/0", "0/1", "1/0", "1/1"]
    assert [*read({"iter": 3.0, "loss": 1}, {"epoch": 2, "loss": 1}).values] == ["3", "2"]


def test_the_last_value_of_a_repeated_step_counts(read):
    found = read(*({"step": s, "loss": v} for s, v in ((0, 1), (1, 2), (0, 3))))
    assert list(found.values.items()) == [("1", 2), ("0", 3)] and found.left_out == 1


def test_the_sign_of_zero_counts_and_nan_is_nan():
    a = {"1": 0.0, "2": math.nan}
    run = Run("whole", 1, Path(), Path(), (), 0.0, False, (), (), Losses({**a, "1": -0.0}, 0))
    assert "at step 1: 0.0 and -0.0 (1 of 2 steps differ)" in _compare_losses("whole-0", a, run)


def test_a_run_that_was_killed_may_have_no_recording():
    whole, other = SimpleNamespace(recording="f", name="whole-0"), SimpleNamespace(recording=None)
    other.killed = True
    assert _with_recordings(None, whole, other) is None
    other.killed = False
    assert _with_recordings(None, whole, other) == "only whole-0 recorded"


def a_run(lines="", losses="", steps=None):
    values = Losses(dict.fromkeys(losses, 1.0), 0)
    lines = lines.split("; ") if lines else []
    return SimpleNamespace(recording=steps and "files", steps=steps, lines=lines, losses=values)


@pytest.mark.parametrize(
    ("whole", "rest", "is_anew"),
    [
        ({}, {"lines": "x"}, False),
        ({"steps": [2, 1]}, {"steps": [1, 5], "lines": "x"}, True),
        ({"steps": [1, 2]}, {"steps": [2, 3], "lines": "x"}, False),
        ({"steps": [1, 2]}, {"lines": "x"}, False),  # it has no file
        ({"losses": "01"}, {"losses": "0", "lines": "x"}, True),
        ({"losses": "01"}, {"losses": "1", "lines": "x"}, False),
        ({"lines": "8h loss 1; 9h loss 2"}, {"lines": "4h loss 1; 5h loss 7"}, True),
        ({"lines": "8h loss 1; 9h loss 2"}, {"lines": "4h loss 1"}, False),
        ({"lines": "8h loss 1; 9h loss 2"}, {"lines": "4h loss 2; 5h loss 1"}, False),
        ({"lines": "a; b"}, {"lines": "found; a; b"}, True),
        ({"lines": "a; b"}, {"lines": "found; b"}, False),
        ({"lines": "a"}, {"lines": "a"}, True),
        ({"lines": "a; b", "losses": "01"}, {"lines": "a; b", "losses": "1"}, True),
        ({"lines": "done", "losses": "012"}, {"lines": "done", "losses": "2"}, False),
    ],
)  # fmt: skip
def test_a_run_that_began_anew(monkeypatch, whole, rest, is_anew):
    def of_ranks(run):
        return [SimpleNamespace(steps=steps) for steps in (run.steps[:1], run.steps)]

    monkeypatch.setattr(comparison, "recordings", of_ranks)
    assert comparison.began_anew(a_run(**rest), a_run(**whole), "loss") is is_anew


@given(st.lists(st.floats(), min_size=1, max_size=30))
@settings(deadline=None, max_examples=50)
def test_every_double_is_read_exactly(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    rows = ({"step": i, "loss": value} for i, value in enumerate(values))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_losses(path, "loss").values
    assert list(found) == list(map(str, range(len(values))))
    for one, value in zip(found.values(), values, strict=True):
        assert math.isnan(one) if math.isnan(value) else bits([one]) == bits([value])


def test_printed_numbers_for_a_picture():
    text = ["epoch 1 loss: 0.5 lr 1", "loss=nan", "loss", "Loss 3", 'the "loss": -1e-3, done']
    found = list(printed(text, "loss").values())
    assert found[0] == 0.5 and math.isnan(found[1]) and found[2:] == [-1e-3]


@pytest.mark.parametrize(
    ("lines", "points"),
    [
        ([], {}),
        (["one"], {}),
        (["a", "b"], {"1/2": 1, "3/4": 2}),
        (["epoch 0", "epoch 1", "epoch 2", "done"],
         {"1/2": 2, "1/4": 1, "3/4": 3, "the end of an epoch": 1}),
        (['{"epoch": 3, "loss": 1}'] * 3 + ['{"epoch": 4, "loss": 1}'],
         {"1/2": 2, "1/4": 1, "3/4": 3, "the end of an epoch": 3}),
        (["start", "Epoch: 1/2", "step", "Epoch: 1/2"], {"1/2": 2, "1/4": 1, "3/4": 3}),
    ],
)  # fmt: skip
def test_where_runs_are_killed(tmp_path, lines, points):
    (tmp_path / "stdout.txt").write_text("".join(f"{line}\n" for line in lines))
    run = Run("whole", 0, tmp_path, tmp_path, (), 0.0, False, (), tuple(lines), Losses({}, 0))
    found = kill_points(run)
    assert list(found) == list(points)
    for name, wanted in points.items():
        for count in range(wanted + 1):
            folder = tmp_path.parent / f"killed-{count}"
            folder.mkdir(exist_ok=True)
            (folder / "stdout.txt").write_text("line\n" * count)
            assert kill_points(run)[name](folder) is (count == wanted)


@pytest.mark.parametrize(("name", "line"), [("stdout.txt", "x\n"), ("{}/rank-0.watch", '"step": ')])
def test_the_middle_of_all_files_which_are_read_once(tmp_path, monkeypatch, name, line):
    whole, other = tmp_path / "whole", tmp_path / "other"
    run = Run("whole", 0, whole, whole, (), 0.0, False, (), (), Losses({}, 0))
    for number in range(2):
        (whole / str(number)).mkdir(parents=True)
    paths = [Path(name.format(number)) for number in range(1 + ("{" in name))]
    for path, count in zip(paths, (2, 8), strict=False):
        (whole / path).write_text(line * count)
    is_half = kill_points(run)["1/2"]
    assert not other.exists()
    (other / paths[-1]).parent.mkdir(parents=True)
    path = other / paths[-1]
    for end in range(1, 1 + len(text := line * (5 if len(paths) > 1 else 1))):
        assert not is_half(other)
        seen = max(0, end - len(line))  # bytes before the last mark, which count no more
        path.write_text(" " * seen + text[seen:end])
    assert is_half(other)


SCRIPT = """
import os, sys, time, torch, fastseed
path = os.path.join(sys.argv[1], "checkpoint")
fastseed.init()
fastseed.reseed(1)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
begin = 0
if os.path.exists(path):
    state = torch.load(path)
    begin = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
watch = fastseed.debug.Watch(model, optimizer, step=begin).attach()
for step in range(begin, 10):
    fastseed.reseed(1, 0, step)
    optimizer.zero_grad()
    model(torch.rand(3, 2)).square().sum().backward()
    optimizer.step()
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({"step": step + 1, **states}, path + ".new")
    os.replace(path + ".new", path)
    time.sleep(0.1)
"""


@pytest.fixture
def words(tmp_path):
    return [sys.executable, str(tmp_path / "train.py"), "{run}"]


@pytest.mark.slow
def test_a_run_that_records_and_prints_nothing_is_killed_by_its_records(tmp_path, words):
    (tmp_path / "train.py").write_text(SCRIPT)
    report = verify(words, times=1, seed=3, timeout=200)
    assert [check.passed for check in report.checks] == [None, True, True, True]
    killed = report.runs[1]
    assert killed.killed and killed.name == "stopped-0"
    (tmp_path / "train.py").write_text(SCRIPT.replace("path):", "path + 'x'):"))  # none is found
    report = verify(words, times=1, seed=3, other_seed=False, timeout=200)
    assert [check.passed for check in report.checks] == [None, True, None]
    assert "1 of 1 began anew" in report.checks[2].message


@pytest.mark.slow
def test_a_checkpoint_without_the_optimizer(tmp_path, words):
    restore = '    optimizer.load_state_dict(state["optimizer"])\n'
    assert restore in SCRIPT
    (tmp_path / "train.py").write_text(SCRIPT.replace(restore, ""))
    report = verify(words, times=1, seed=3, other_seed=False, timeout=200)
    _, stop, resume = report.checks
    assert stop.passed and not resume.passed
    assert "the first difference is at step " in resume.message
    assert "optimizer weight.momentum_buffer: " in resume.message


SLEEPER = """
import os, subprocess, sys, time
def sleeper(file, code="pass", **how):
    code += ";import time; open(%r, 'w').close(); time.sleep(100)" % (file + "-up")
    child = subprocess.Popen([sys.executable, "-S", "-c", code], **how)
    while not os.path.exists(file + "-up"): time.sleep(0.005)
    with open(file, "w") as out: out.write(str(child.pid))
"""


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


def ran(folder, code, timeout=60, **how):
    words = [sys.executable, "-S", "-c", code]
    return run_program("whole-0", words, os.environ, folder, timeout, **how)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('out'); raise SystemExit(7)", "ended with code 7; the end of stdout.txt:\n  out"),
        ("import os; os.kill(os.getpid(), 9)", "ended with code -9; it printed nothing"),
        ("import sys; sys.exit('x' * 5_000_000)", "the end of stderr.txt:\n  " + "x" * 500),
    ],
)
def test_errors_of_failed_runs(tmp_path, code, message):
    with pytest.raises(RuntimeError, match=r"^fastseed.verify: run whole-0 ended") as found:
        ran(tmp_path, code)
    assert str(found.value).endswith(message)


def test_a_program_that_cannot_be_started(tmp_path):
    with pytest.raises(RuntimeError, match=r"'no such' cannot be started: No such file or dir"):
        run_program("x", ["no such"], os.environ, tmp_path, None)


def test_a_timeout_ends_all_processes_of_a_run(tmp_path, monkeypatch):
    """Processes that ignore SIGTERM are killed."""
    monkeypatch.setattr(processes, "GRACE", 0.2)
    deaf = "import signal; signal.signal(15, signal.SIG_IGN)"
    code = f"{SLEEPER}sleeper({str(tmp_path / 'a')!r}); sleeper({str(tmp_path / 'b')!r}, {deaf!r})"
    with pytest.raises(RuntimeError, match="did not end within 2 seconds; it printed nothing"):
        ran(tmp_path, f"{deaf}\n{code}\ntime.sleep(100)", timeout=2)
    assert all(ends(int((tmp_path / name).read_text())) for name in "ab")


def test_what_a_run_leaves_behind_is_ended(tmp_path):
    assert not ran(tmp_path, f"{SLEEPER}sleeper({str(tmp_path / 'child')!r})")
    assert ends(int((tmp_path / "child").read_text()))


def test_a_run_is_killed_when_it_is_told(tmp_path):
    path = tmp_path / "stdout.txt"
    code = "import time\nwhile True: print('x', flush=True); time.sleep(0.01)"
    assert ran(tmp_path, code, kill_when=lambda _: path.stat().st_size > 10)
    assert path.read_text().count("x") > 5


@pytest.mark.costly("programs")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_its_runs(tmp_path, number):
    script = tmp_path / "train.py"
    script.write_text(f"{SLEEPER}\nsleeper({str(tmp_path / 'pid')!r}); time.sleep(100)")
    process = subprocess.Popen(
        [sys.executable, "-m", "fastseed", "verify", "--", sys.executable, "-S", str(script)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        written = tmp_path / "pid"
        while not (written.exists() and written.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (128 + number, ""), errors
    assert errors.splitlines()[-1] == "fastseed: interrupted" and "Traceback" not in errors
    assert ends(int((tmp_path / "pid").read_text()))


def test_an_ignored_signal_stays_ignored():
    numbers = signal.SIGHUP, signal.SIGTERM
    before = [signal.signal(one, signal.SIG_IGN) for one in numbers]  # as nohup does
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        command._end_on_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        with pytest.raises(exit_codes.Signalled):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
    finally:
        for one, handler in zip(numbers, before, strict=True):
            signal.signal(one, handler)
