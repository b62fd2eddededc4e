"""Starting and ending programs: failures, time-outs, kills, and what a run leaves behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.processes import clean_environment

from fastseed.cli import exit_codes
from fastseed.cli import verify as command
from fastseed.tools.verify import processes
from fastseed.tools.verify.processes import run_program

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
    assert ran(tmp_path, code, kill_when=lambda: path.stat().st_size > 10)
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
