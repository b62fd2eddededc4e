"""Explanations of differences claim no more than was observed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from fastseed.debug.bisection import Bisection
from fastseed.tools import verify
from fastseed.tools.verify import audit_run, diagnosis
from fastseed.tools.verify.recordings import FirstDifference
from fastseed.tools.verify.result import Finding

SUSPECT = Finding("generator", True, "an unseeded generator is used", "train.py:3", "seed it")


def kinds(suspects: list[Finding], audited: bool) -> list[tuple[str, bool]]:
    return [(one.kind, one.certain) for one in diagnosis.seeded_differ(None, suspects, audited)]


def test_arithmetic_is_the_last_explanation():
    assert kinds([], audited=True) == [("arithmetic", False)]
    assert kinds([], audited=False) == [("tensor", False)]
    assert kinds([SUSPECT], audited=True) == []


@pytest.mark.parametrize(
    ("group", "name", "message"),
    [
        ("optimizer", "group 0.lr", "the optimizer's group 0.lr differs in the resumed run"),
        ("gradient", "0.weight", "its data differ, by order, augmentation"),
    ],
)
def test_schedules_and_data_of_resumed_runs(group, name, message):
    found = Bisection(8, False, 0, (SimpleNamespace(group=group, name=name),), 9, 1, ())
    first = FirstDifference("uninterrupted-0", "resumed-0", found, True)
    assert message in list(diagnosis.resumed_differs(first))[-1].message


def test_findings_of_an_audit():
    seen = [
        ("seeded", "torch.manual_seed", "train.py:3"),
        ("unseeded", "a generator", "random.py:3"),
        ("unseeded", "a generator", "numpy.random"),
    ]
    assert [one.kind for one in audit_run._findings(seen, set())] == ["audit", "generator"]
    manual = audit_run._findings(seen, {"init", "scope"})
    assert [(one.kind, one.certain) for one in manual] == [
        ("generator", True),
        ("generator", False),
    ]
    assert "fastseed.init is not called" in manual[1].message


def test_scripts_of_commands(tmp_path):
    script = str(tmp_path / "a.py")
    (tmp_path / "a.py").touch()
    for command, index in (
        (["python3", script], 1), (["python", "-X", "dev", "-u", script], 4),
        (["python", "-c", script], None), (["python", "-m", "torchrun", script], 3),
        (["torchrun", "--n=2", script], 2), (["python", "no.py"], None),
    ):  # fmt: skip
        assert diagnosis.find_script(command) == index, command


def test_important_differences_of_the_environment():
    rows = [
        ("critical", "variables/X", "changed", None, "1" * 90, "why"),
        ("low", "a", "changed", 1, 2, "b"),
    ]
    (found,) = diagnosis.read_environment(rows)
    assert found.message.startswith("variables/X was missing in the first session and 111")
    assert found.message.endswith("1… in the last: why")


SCRIPT = """
import argparse, json, random
import numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--checkpoint")
parser.add_argument("--seed", type=int)
args, _ = parser.parse_known_args()
if args.seed is not None:
    np.random.seed(args.seed)
for epoch in range(args.epochs):
    print(json.dumps({"epoch": epoch, "loss": np.random.rand() + random.random()}))
open(args.checkpoint, "w").close()
"""


@pytest.mark.slow
def test_a_global_generator_that_is_not_seeded(tmp_path):
    """Scripts that do not use fastseed are audited too."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [
        sys.executable, str(script), "--epochs", "{epochs}", "--checkpoint", "{checkpoint}",
        "[", "--resume", "{resume}", "]", "[", "--seed", "{seed}", "]",
    ]  # fmt: skip
    options = verify.Options(command=command, directory=tmp_path / "runs", epochs=2, runs=2, jobs=2)
    report = verify.verify(options)
    assert not report.passed
    (finding,) = [one for one in report.findings if one.kind != "lint"]
    assert (finding.kind, finding.certain) == ("generator", False)
    assert "fastseed.init is not called" in finding.message


@pytest.mark.slow
def test_an_environment_that_changed_between_sessions(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text(
        "import json, os, sys\n"
        "factor = 1.5 if os.environ.get('MKL_CBWR') else 1.0\n"
        "for epoch in range(int(sys.argv[1])):\n"
        "    print(json.dumps({'epoch': epoch, 'loss': factor / (epoch + 1)}))\n"
    )
    given = {
        "command": [sys.executable, "-S", str(script), "{epochs}", "--run={run}"],
        "directory": tmp_path / "runs", "epochs": 2, "baseline": False, "audit": False,
    }  # fmt: skip
    monkeypatch.delenv("MKL_CBWR", raising=False)
    report = verify.verify(verify.Options(**given, runs=1))
    assert report.passed and report.environment == () and report.notes[1:] == ()
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    report = verify.verify(verify.Options(**given, runs=2))
    assert report.checks[0].differences[0].b == "uninterrupted-1"
    assert ("critical", "variables/MKL_CBWR") in [row[:2] for row in report.environment]
    found = [one.message for one in report.findings if one.kind == "environment"]
    assert any("variables/MKL_CBWR was missing in the first session" in one for one in found)
