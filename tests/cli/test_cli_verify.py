"""`fastseed verify`: exit codes, what is printed where, and what interrupts leave behind."""

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
from helpers.support import clean_environment

from fastseed.cli import exit_codes, main, verify
from fastseed.tools import environment
from fastseed.tools.verify import PLACES
from fastseed.tools.verify.reports import plots

SCRIPT = """\
import json, os, sys, time
run, checkpoint, epochs, *rest = sys.argv[1:]
options = dict(zip(rest[::2], rest[1::2]))
#BEGIN
begin, value = 0, int(options.get("--seed", int.from_bytes(os.urandom(4), "big")))
if "--resume" in options:
    with open(options["--resume"]) as file:
        begin, value = json.load(file)
for step in range(begin, int(epochs)):
    value = (value * 48271 + 11) % 2147483647
    print(json.dumps({"step": step, "loss": value / 7}))
with open(checkpoint, "w") as file:
    json.dump([int(epochs), value], file)
"""
PLACED = ["{run}", "{checkpoint}", "{epochs}", "[", "--resume", "{resume}", "or", "--seed",
          "{seed}", "]"]  # fmt: skip
UNSEEDED = "options.pop('--seed', 0)\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A capture of the environment takes half a second."""
    monkeypatch.setattr(environment, "capture", lambda folder: folder.mkdir())


@pytest.fixture
def no_picture(monkeypatch):
    """Nor is it needed each time that a picture is drawn."""
    monkeypatch.setattr(plots, "png", lambda report: b"\x89PNG")


def arguments(folder, *options: str, begin: str = "") -> list[str]:
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("#BEGIN\n", begin))
    return [
        "verify", "--epochs", "4", "--dir", str(folder / "runs"), "--runs", "2", "--no-probe",
        *options, "--", sys.executable, "-S", str(script), *PLACED,
    ]  # fmt: skip


def test_passing_prints_tables_and_where_the_reports_are(tmp_path, capsys):
    assert main(arguments(tmp_path)) == exit_codes.OK
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[-1] == (
        "PASSED: bit-identical: seeded runs, stopped and resumed or not, are equal to the last bit"
    )
    for word in ("Checks", "Experiments", "Paired differences", "resumed"):
        assert word in shown.out
    wrote = [line[6:] for line in lines if line.startswith("wrote ")]
    assert len(wrote) == 4 and all(os.path.getsize(path) for path in wrote)
    progress = shown.err.splitlines()
    assert len(progress) == 8 and progress[-1].startswith("100%  unseeded-1 took ")
    assert "left" in progress[0] and "left" not in progress[-1]
    assert main(arguments(tmp_path)) == exit_codes.OK
    assert capsys.readouterr().err.splitlines()[0].endswith("%  whole-0 was there")


def test_failing_ends_with_1(tmp_path, capsys, no_picture):
    assert main(arguments(tmp_path, begin=UNSEEDED)) == exit_codes.FOUND
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAILED: not reproducible: ")


def strict(text: str):
    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    ("begin", "code"),
    [
        ("", exit_codes.OK),
        (UNSEEDED, exit_codes.FOUND),
        ("print(json.dumps({'step': -1, 'loss': float('nan')}))\n", exit_codes.OK),
        ("print('\\x1b[31m\\0\\xff\\u2028{\"loss\": ')\n", exit_codes.OK),
    ],
)
def test_json_is_one_document_and_nothing_else(tmp_path, capsys, no_picture, begin, code):
    options = ("--json", "--runs", "1") if code == exit_codes.OK else ("--json",)
    assert main(arguments(tmp_path, *options, begin=begin)) == code
    shown = capsys.readouterr()
    found = strict(shown.out)
    assert found["passed"] == (code == exit_codes.OK)
    assert shown.err == "" and "\x1b" not in shown.out
    with open(tmp_path / "runs" / "report" / "report.json") as file:
        assert strict(file.read()) == found


@pytest.mark.parametrize(
    ("begin", "options", "code", "says"),
    [
        ("sys.exit('\\x1b[31mred')\n", (), exit_codes.UNAVAILABLE, "got exit code 1; the end of"),
        ("print(1); sys.exit()\n", (), exit_codes.USAGE, "format must be given for"),
        ("", ("--log", "x.jsonl"), exit_codes.USAGE, "log must be one path below {run}"),
        ("", ("--epochs", "1"), exit_codes.USAGE, "epochs must be in [2, 2147483647], got 1"),
        (
            "",
            ("--epochs", "9" * 4000),
            exit_codes.USAGE,
            "epochs must be in [2, 2147483647], got 9999",
        ),
        ("", ("--runs", "9" * 5000), exit_codes.USAGE, "argument --runs: invalid int value"),
        (
            "",
            ("--seed", "-1"),
            exit_codes.USAGE,
            "seed must be in [0, 18446744073709551615], got -1",
        ),
        ("", ("--timeout", "nan"), exit_codes.USAGE, "timeout must be in (0, 2.592e+06] seconds"),
        ("", ("--timeout", "x"), exit_codes.USAGE, "argument --timeout: invalid float value"),
        ("", ("--require", "x"), exit_codes.USAGE, "argument --require: invalid choice"),
        ("", ("--format", "x"), exit_codes.USAGE, "format must be one of ("),
        ("", ("--pattern", "("), exit_codes.USAGE, "pattern must be a regular expression"),
        ("", ("--unknown",), exit_codes.USAGE, "unrecognized arguments: --unknown"),
    ],
)
def test_errors_and_their_codes(tmp_path, capsys, begin, options, code, says):
    assert main(arguments(tmp_path, *options, begin=begin)) == code
    shown = capsys.readouterr()
    assert says in shown.err and "Traceback" not in shown.err and "\x1b" not in shown.err
    assert shown.out == ""
    assert main(arguments(tmp_path, "--json", *options, begin=begin)) == code
    error = strict(capsys.readouterr().out)["error"]
    assert error["exit_code"] == code and says in error["message"]


@pytest.mark.parametrize("given", [[], ["--"]])
def test_a_program_has_to_be_given(capsys, given, tmp_path):
    assert (
        main(["verify", "--epochs", "4", "--dir", str(tmp_path / "x"), *given]) == exit_codes.USAGE
    )
    assert capsys.readouterr().err == ("fastseed verify: give a program: … -- python train.py …\n")
    assert main(["verify"]) == exit_codes.USAGE
    assert "the following arguments are required: --epochs, --dir" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_help_shows_places_an_example_and_exit_codes(capsys):
    assert main(["verify", "--help"]) == exit_codes.OK
    shown = capsys.readouterr().out
    for place, text in PLACES.items():
        assert f"  {{{place}}}" in shown and text in shown
    assert "[ --resume {resume} or --seed {seed} ]" in shown
    assert all(f"{code:>3}  {text}" in shown for code, text in exit_codes.MEANINGS.items())


def test_without_the_extra_it_is_plain_and_says_what_is_missing(tmp_path, capsys, monkeypatch):
    real = builtins.__import__
    missing = ("rich", "matplotlib", "junitparser", "jinja2", "scipy")

    def refusing(name, *rest, **more):
        if name.partition(".")[0] in missing:
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest, **more)

    for name in [one for one in sys.modules if one.partition(".")[0] in missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refusing)
    assert main(arguments(tmp_path)) == exit_codes.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("PASSED: bit-identical: ")
    notes = [line for line in lines if line.startswith("note: ")]
    assert len(notes) == 4 and all('pip install "fastseed[report]"' in note for note in notes)
    assert "note: without SciPy there are no Student-t intervals" in "\n".join(notes)
    assert [line for line in lines if line.startswith("wrote ")] == [
        f"wrote {tmp_path / 'runs' / 'report' / 'report.json'}"
    ]


def test_signals_are_as_before(tmp_path):
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)]
    with verify._terminable(), contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(5)
        raise AssertionError("not interrupted")
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)] == before
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with verify._terminable():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, ignored)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_and_what_is_done_is_kept(tmp_path, how):
    begin = (
        "import subprocess\n"
        "if run.endswith(('half-0', 'half-1')):\n"
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
        until, written = time.monotonic() + 60, []
        while len(written) < 2 and time.monotonic() < until:
            time.sleep(0.02)
            files = (tmp_path / "runs").glob("runs/half-*/pids")
            written = [one for path in files if (one := path.read_text()).endswith("\n")]
        process.send_signal(how)
        out, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (exit_codes.INTERRUPTED, ""), errors
    assert errors.splitlines()[-1] == "fastseed: interrupted" and "Traceback" not in errors
    assert len(written) == 2
    for pid in " ".join(written).split():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            assert file.read().rpartition(")")[2].split()[0] in "ZX"
    kept = sorted(path.parent.name for path in (tmp_path / "runs").glob("runs/*/run.json"))
    assert kept == ["unseeded-0", "whole-0", "whole-1"]
