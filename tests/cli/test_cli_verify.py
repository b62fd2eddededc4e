"""`fastseed verify`: exit codes, output, and the processes left after an interrupt."""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.processes import clean_environment
from helpers.tiny_training import ARGUMENTS, SCRIPT

from fastseed.cli import exit_codes, main, verify
from fastseed.tools import environment
from fastseed.tools.verify import PLACEHOLDERS, reports

UNSEEDED = "options.pop('--seed', 0)\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Without captures of the environment and pictures, and without colours."""
    monkeypatch.setattr(environment, "capture", lambda folder: folder.mkdir(parents=True))
    monkeypatch.setattr(reports, "png", lambda report: b"\x89PNG")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def default_signals():
    """Signals have their default handlers, however the tests were started (``nohup``, ``&``)."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


def arguments(folder, *options: str, begin: str = "") -> list[str]:
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("#BEGIN\n", begin))
    return [
        "verify", "--epochs", "4", "--dir", str(folder / "runs"), "--runs", "2",
        *options, "--", sys.executable, "-S", str(script), *ARGUMENTS,
    ]  # fmt: skip


def strict(text: str):
    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def test_a_verification_that_passes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments(tmp_path)) == exit_codes.OK
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[-1] == (
        "PASSED: bit-identical: seeded runs are bit-identical, whether resumed or not"
    )
    for word in ("Checks", "Experiments", "resumed"):
        assert word in shown.out
    wrote = [line[6:] for line in lines if line.startswith("wrote ")]
    names = ["report.json", "curves.png"]
    assert wrote == [os.path.join("runs", "report", name) for name in names]
    progress = shown.err.splitlines()
    assert len(progress) == 8 and progress[-1].startswith("8 of 8: unseeded-1 took ")

    assert main(arguments(tmp_path, "--json")) == exit_codes.OK
    shown = capsys.readouterr()
    assert strict(shown.out)["passed"] and shown.err == ""
    assert main(arguments(tmp_path)) == exit_codes.OK
    assert capsys.readouterr().err.splitlines()[0] == "1 of 8: uninterrupted-0 kept"


def test_a_verification_that_fails(tmp_path, capsys):
    begin = UNSEEDED + "print(json.dumps({'step': -1, 'loss': float('nan')}), '\\x1b[31m')\n"
    assert main(arguments(tmp_path, begin=begin)) == exit_codes.FOUND
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("FAILED: not reproducible: ")
    (repeat,) = (line for line in lines if line.startswith("repeat "))
    assert "  FAILED  " in repeat
    (tensors,) = (line for line in lines if line.startswith("tensors "))
    assert "  not checked  " in tensors
    assert main(arguments(tmp_path, "--json", begin=begin)) == exit_codes.FOUND
    shown = capsys.readouterr()
    assert not strict(shown.out)["passed"] and "\x1b" not in shown.out


@pytest.mark.parametrize(
    ("begin", "options", "code", "message"),
    [
        ("sys.exit('\\x1b[31mred')\n", (), exit_codes.UNAVAILABLE, "exit code 1; the end of"),
        ("print(1); sys.exit()\n", (), exit_codes.USAGE, "must hold values of 'loss', got none"),
        ("", ("--log", "x.jsonl"), exit_codes.USAGE, "log must be one file below {run}"),
        ("", ("--epochs", "1"), exit_codes.USAGE, "epochs must be in [2, 2147483647], got 1"),
        ("", ("--runs", "x"), exit_codes.USAGE, "argument --runs: invalid int value"),
        ("", ("--unknown",), exit_codes.USAGE, "unrecognized arguments: --unknown"),
    ],
)
def test_errors_and_their_codes(tmp_path, capsys, begin, options, code, message):
    assert main(arguments(tmp_path, "--json", *options, begin=begin)) == code
    shown = capsys.readouterr()
    assert message in shown.err and "Traceback" not in shown.err and "\x1b" not in shown.err
    error = strict(shown.out)["error"]
    assert error["exit_code"] == code and message in error["message"]


@pytest.mark.parametrize("given", [[], ["--"]])
def test_a_missing_program(capsys, given, tmp_path):
    directory = tmp_path / "x"
    assert main(["verify", "--epochs", "4", "--dir", str(directory), *given]) == exit_codes.USAGE
    assert capsys.readouterr().err.startswith("fastseed verify: a program is missing: ")
    assert main(["verify"]) == exit_codes.USAGE
    assert "fastseed verify: a program is missing: " in capsys.readouterr().err
    assert main(["verify", "--", "x"]) == exit_codes.USAGE
    assert "--epochs X and --dir DIR are needed; --repeat-only" in capsys.readouterr().err
    assert not directory.exists()


def test_help_has_placeholders_an_example_and_exit_codes(capsys):
    assert main(["verify", "--help"]) == exit_codes.OK
    shown = capsys.readouterr().out
    for name, text in PLACEHOLDERS.items():
        assert f"  {{{name}}}" in shown and text in shown
    assert "[ --resume {resume} or --seed {seed} ]" in shown
    assert all(f"{code:>3}  {text}" in shown for code, text in exit_codes.MEANINGS.items())


def test_without_the_extra(tmp_path, capsys, monkeypatch):
    """Tables are plain, and notes name what is missing."""
    monkeypatch.undo()
    monkeypatch.setattr(environment, "capture", lambda folder: folder.mkdir(parents=True))
    real = builtins.__import__
    missing = ("rich", "matplotlib")

    def refusing(name, *rest, **more):
        if name.partition(".")[0] in missing:
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest, **more)

    for name in [one for one in sys.modules if one.partition(".")[0] in missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refusing)
    assert main(arguments(tmp_path)) == exit_codes.OK
    lines = capsys.readouterr().out.splitlines()
    notes = [line for line in lines if line.startswith("note: ")]
    assert len(notes) == 1 and 'pip install "fastseed[report]"' in notes[0]
    assert len([line for line in lines if line.startswith("wrote ")]) == 1


# ---------------------------------------------------------------- signals


def test_signals_are_as_before(default_signals):
    with pytest.raises(KeyboardInterrupt), verify._interruptible():
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(5)
    assert signal.getsignal(signal.SIGHUP) == signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_ignored_signal_stays_ignored(default_signals):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with verify._interruptible():
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_an_interrupt_ends_all_runs_and_finished_ones_are_kept(tmp_path, how, default_signals):
    begin = (
        "import subprocess\n"
        "if run.endswith(('truncated-0', 'truncated-1')):\n"
        "    code = 'import time; time.sleep(100)'\n"
        "    child = subprocess.Popen([sys.executable, '-S', '-c', code])\n"
        "    with open(run + '/pids', 'w') as file: file.write(f'{os.getpid()} {child.pid}\\n')\n"
        "    time.sleep(100)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "fastseed", *arguments(tmp_path, "--jobs", "2", begin=begin)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), text=True,
    )  # fmt: skip
    try:
        deadline, written = time.monotonic() + 100, []
        while len(written) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
            files = (tmp_path / "runs").glob("runs/truncated-*/pids")
            written = [one for path in files if (one := path.read_text()).endswith("\n")]
        process.send_signal(how)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (exit_codes.INTERRUPTED, ""), errors
    assert errors.splitlines()[-1] == "fastseed: interrupted" and "Traceback" not in errors
    assert len(written) == 2
    for pid in " ".join(written).split():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            assert file.read().rpartition(")")[2].split()[0] in "ZX"
    kept = sorted(path.parent.name for path in (tmp_path / "runs").glob("runs/*/run.json"))
    assert kept == ["uninterrupted-0", "uninterrupted-1", "unseeded-0"]
