"""``fastseed verify --repeat-only``: two runs of a program as it is, compared."""

from __future__ import annotations

import json
import os
import sys

import pytest
import torch

from fastseed.cli import exit_codes, main
from fastseed.debug import Watch
from fastseed.tools import verify

PYTHON = [sys.executable, "-S", "-c"]


@pytest.mark.parametrize(
    ("program", "line", "a", "b"),
    [
        ("print(1); print(2)", None, None, None),
        ("import os; print(1); print('2' if RUN == 'a' else '3')", 2, "2", "3"),
        ("print(1); RUN == 'a' or print(2)", 2, None, "2"),
        ("RUN == 'a' and print(1)", 1, "1", None),
    ],
)
def test_repeat_names_the_first_line_that_differs(program, line, a, b):
    run = "import os; RUN = os.path.basename(os.environ['FASTSEED_RUN_DIR']); "
    found = verify.repeat([*PYTHON, run + program])
    assert (found.line, found.a, found.b, bool(found)) == (line, a, b, line is None)
    assert found.lines == (line or 2) and found.recorded is None


def test_repeat_leaves_the_seed_to_the_program(monkeypatch):
    monkeypatch.delenv("FASTSEED_MASTER_SEED", raising=False)
    program = [*PYTHON, "import os; print(os.environ.get('FASTSEED_MASTER_SEED') or os.getpid())"]
    assert not verify.repeat(program)
    assert verify.repeat(program, seed=7)


def test_repeat_compares_recordings(tmp_path):
    model = torch.nn.Linear(2, 2)
    for name in "ab":
        with Watch(model, path=tmp_path / name) as watch:
            watch.record()
        torch.nn.init.constant_(model.bias, 7)
    copy = "shutil.copytree('%s/' + run[-1] * %d + 'a' * %d, run + '/watch')"
    program = "import os, shutil; run = os.environ['FASTSEED_RUN_DIR']; " + copy
    found = verify.repeat([*PYTHON, program % (tmp_path, 1, 0)])
    assert found.line is None and not found and "parameter bias" in found.recorded
    found = verify.repeat([*PYTHON, program % (tmp_path, 0, 1)])
    assert found and found.recorded == "all 2 common steps are equal"


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        ("pass", ValueError, "fastseed.tools.verify.repeat: command must be a program that prints"),
        ("1 / 0", RuntimeError, "exit code 1; the end of stderr.txt:\n  Traceback"),
        ("import time; time.sleep(60)", RuntimeError, "did not end within 0.5 seconds"),
    ],
)
def test_repeat_errors(program, error, message):
    with pytest.raises(error) as raised:
        verify.repeat([*PYTHON, program], timeout=0.5 if "sleep" in program else None)
    assert message in str(raised.value)


@pytest.mark.parametrize("command", ["true", [], [1]])
def test_repeat_checks_the_command(command):
    with pytest.raises(TypeError, match=r"fastseed.tools.verify.repeat: command(\[0\])? must be a"):
        verify.repeat(command)


def test_repeat_of_a_program_that_does_not_exist():
    with pytest.raises(RuntimeError, match="'/no/such' cannot be started: No such file"):
        verify.repeat(["/no/such"])


def test_command_repeats(capsys):
    assert main(["verify", "--repeat-only", "--", *PYTHON, "print(1)"]) == exit_codes.OK
    assert capsys.readouterr().out == "PASSED: two runs are equal in 1 line of output\n"
    differing = [*PYTHON, "import os; print('\\x1b[31m', os.getpid())"]
    assert main(["verify", "--repeat-only", "--json", "--", *differing]) == exit_codes.FOUND
    assert json.loads(capsys.readouterr().out)["line"] == 1
    assert main(["verify", "--repeat-only", "--", *differing]) == exit_codes.FOUND
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and shown.endswith("FAILED: two runs differ\n")


def test_command_takes_no_options_of_the_experiments(capsys):
    assert main(["verify", "--repeat-only", "--runs", "3", "--", os.devnull]) == exit_codes.USAGE
    assert "--repeat-only takes --seed, --deterministic, --timeout" in capsys.readouterr().err
