"""`fastseed run`: the variables, the folder of a run, and the program that replaces it."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
from helpers.support import LAUNCHER_VARIABLES, SCRIPTS

from fastseed.cli import exit_codes, main
from fastseed.determinism import launch
from fastseed.tools import environment as environment_of_run

OWN = ("PYTHONHASHSEED", "FASTSEED_MASTER_SEED", "FASTSEED_DETERMINISTIC")
DETERMINISTIC = {
    "FASTSEED_DETERMINISTIC": "1",
    "TORCHINDUCTOR_DETERMINISTIC": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "MKL_CBWR": "AUTO",
    "NCCL_ALGO": "Ring",
    "HOROVOD_FUSION_THRESHOLD": "0",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
    "FLASH_ATTENTION_DETERMINISTIC": "1",
}
CHILD = [sys.executable, str(SCRIPTS / "run_child.py")]


def environment(**more):
    gone = {*LAUNCHER_VARIABLES, *OWN, *DETERMINISTIC, "FASTSEED_RUN_DIR"}
    return {**{k: v for k, v in os.environ.items() if k not in gone}, **more}


def started(*arguments, **how):
    """Start `fastseed run`."""
    line = [sys.executable, "-m", "fastseed", "run", *map(str, arguments)]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how}
    return subprocess.Popen(line, env=environment(), **how)


def ran(*arguments, **how):
    """Return its exit code, standard output and standard error."""
    process = started(*arguments, **how)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.fixture
def becoming(monkeypatch):
    """Record the programs that this process would become, and restore the environment."""
    for name in (*OWN, *DETERMINISTIC, "FASTSEED_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    calls = []

    def become(arguments, variables):
        calls.append((list(arguments), dict(variables)))
        return 0

    monkeypatch.setattr(launch, "become", become)
    yield calls
    os.environ.clear()
    os.environ.update(before)


def test_scripts_and_modules_are_started_by_this_python(becoming, capsys):
    for words, expected in (
        (["train.py", "--lr", "a b"], ["train.py", "--lr", "a b"]),
        (["-m", "train", "-m"], ["-m", "train", "-m"]),
        (["--", "-m", "train"], ["-m", "train"]),
    ):
        assert main(["run", *words]) == 0
        assert becoming.pop()[0] == [sys.executable, *expected]
    assert main(["run", "--deterministic", "train.py"]) == 0
    assert becoming.pop()[1]["FASTSEED_DETERMINISTIC"] == "1"
    assert main(["run", "--deterministic=warn", "train.py"]) == 0
    assert becoming.pop()[1]["FASTSEED_DETERMINISTIC"] == "warn"


@pytest.mark.parametrize(
    "base, how, expected",
    [
        ({}, {}, {"PYTHONHASHSEED": "0"}),
        ({"PYTHONHASHSEED": "5"}, {}, {}),
        ({"PYTHONHASHSEED": "random"}, {}, {"PYTHONHASHSEED": "0"}),
        (
            {"PYTHONHASHSEED": "5"},
            {"seed": 7},
            {"PYTHONHASHSEED": "7", "FASTSEED_MASTER_SEED": "7"},
        ),
        ({}, {"seed": 2**32 + 9}, {"PYTHONHASHSEED": "9", "FASTSEED_MASTER_SEED": str(2**32 + 9)}),
        ({}, {"deterministic": True}, {"PYTHONHASHSEED": "0", **DETERMINISTIC}),
        (
            {},
            {"deterministic": "warn"},
            {"PYTHONHASHSEED": "0", **DETERMINISTIC, "FASTSEED_DETERMINISTIC": "warn"},
        ),
        (
            {**DETERMINISTIC, "CUBLAS_WORKSPACE_CONFIG": ":16:8", "NCCL_ALGO": "Tree"},
            {"deterministic": True},
            {"PYTHONHASHSEED": "0", "NCCL_ALGO": "Ring"},
        ),
    ],
)
def test_variables(base, how, expected):
    assert launch.variables(base, **how) == expected


def test_arguments_after_the_program_belong_to_it(becoming, capsys):
    line = ["python", "train.py", "--seed", "3", "--", "--json", "", "a b", "$HOME", "*", ";", "'"]
    assert main(["run", "--seed", "7", "--", *line]) == 0
    assert main(["run", "--seed", "7", *line]) == 0
    assert [arguments for arguments, _ in becoming] == [line, line]
    assert all(variables["FASTSEED_MASTER_SEED"] == "7" for _, variables in becoming)
    shown = capsys.readouterr()
    assert shown.out == "" and "PYTHONHASHSEED=7 FASTSEED_MASTER_SEED=7" in shown.err


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["--"], ["--seed", "7"], ["--", ""], ["--seed", "-1", "x"], ["--seed", "x", "x"]),
        *(["--seed", str(2**64), "x"], ["--seed", "1.5", "x"], ["--sed", "1", "x"]),
        *(["--deterministic=no", "x"], ["--json", "x"], ["--config", "c.json", "x"]),
    ],
)
def test_wrong_usage_starts_nothing(becoming, capsys, arguments):
    assert main(["run", *arguments]) == exit_codes.USAGE
    assert becoming == []
    shown = capsys.readouterr()
    assert shown.err and "Traceback" not in shown.err


def test_the_record_is_of_the_environment_of_the_program(becoming, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["run", "--seed", "7", "--out", "runs", "python", "t.py", "--json"]
    assert main(line) == 0
    (call,) = becoming
    assert call[1]["FASTSEED_RUN_DIR"] == str(tmp_path / "runs")
    found = environment_of_run.load(tmp_path / "runs" / "environment")["variables"]
    assert {"PYTHONHASHSEED", "FASTSEED_MASTER_SEED"} <= found.keys()
    capsys.readouterr()
    assert main(line) == exit_codes.USAGE  # the folder is in use
    assert len(becoming) == 1
    assert capsys.readouterr().out == ""  # --json is the program's


def test_the_environment_alone_is_recorded(becoming, tmp_path, capsys):
    assert main(["run", "--out", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == [] and becoming == []
    assert main(["run", "--out", str(tmp_path / "b"), "--patches"]) == 0
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    assert main(["show", str(tmp_path / "a")]) == 0


@pytest.mark.costly("a fresh process with torch")
def test_a_python_program_gets_everything(tmp_path):
    odd = ["a b", "", "$HOME", "`touch x`", "; touch y", "*", "'\"\\", "ü\n"]
    code, out, err = ran("--seed", 7, "--deterministic", "--", *CHILD, *odd, cwd=tmp_path)
    assert code == 0, err
    found = json.loads(out)
    assert found["arguments"] == odd
    assert found["master_seed"] == 7 and found["hash"] == ["7", 7]
    line = [sys.executable, "-c", "print(list({'a', 'b', 'c', 'd', 'e', 'f', 'g'}))"]
    again = subprocess.check_output(line, text=True, env=environment(PYTHONHASHSEED="7"))
    assert str(found["order"]) == again.strip()  # that of a set of strings
    assert found["late"] == [] and found["algorithms"] == "unchanged"
    assert "CUBLAS_WORKSPACE_CONFIG=:4096:8" in err
    assert list(tmp_path.iterdir()) == []


def test_the_exit_code_is_the_programs():
    assert ran("--", "sh", "-c", "echo out; echo err >&2; exit 42")[:2] == (42, "out\n")


@pytest.mark.parametrize(
    "program, code",
    [("no-such-program-at-all", exit_codes.NOT_FOUND), (os.devnull, exit_codes.NOT_STARTED)],
)
def test_a_program_that_cannot_be_started(monkeypatch, capsys, program, code):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert main(["run", "--", program]) == code
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN  # as Python has it, here it goes on
    shown = capsys.readouterr()
    assert program in shown.err and "Traceback" not in shown.err and shown.out == ""


def test_signals_reach_the_program():
    program = "trap 'echo got INT; exit 5' INT; echo $$; while :; do sleep 0.1; done"
    process = started("--", "sh", "-c", program)
    try:
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert (process.returncode, out) == (5, "got INT\n")


def test_the_program_ignores_no_signal_that_python_ignores():
    code, out, _ = ran("--", "grep", "SigIgn", "/proc/self/status")
    assert code == 0
    assert not int(out.split()[1], 16) >> (signal.SIGPIPE - 1) & 1
