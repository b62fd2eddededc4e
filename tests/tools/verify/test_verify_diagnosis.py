"""Explanations of differences claim no more than was observed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from fastseed.debug.bisection import Bisection
from fastseed.tools import verify
from fastseed.tools.verify import diagnosis
from fastseed.tools.verify.comparison import Recorded


def test_arithmetic_is_the_last_explanation():
    differing = Bisection(
        8, False, 0, (SimpleNamespace(group="gradient", name="w"),), None, None, 9, 1, ()
    )
    first = Recorded("uninterrupted-0", "uninterrupted-1", differing, True)

    def kind(recorded):
        found = diagnosis.seeded_differ(recorded)
        return found.kind, found.certain

    assert kind(first) == ("arithmetic", False)
    assert kind(None) == ("tensor", False)


@pytest.mark.parametrize(
    ("group", "name", "message"),
    [
        ("optimizer", "group 0.lr", "the optimizer's group 0.lr differs in the resumed run"),
        ("gradient", "0.weight", "its data differ, by order, augmentation"),
    ],
)
def test_schedules_and_data_of_resumed_runs(group, name, message):
    found = Bisection(8, False, 0, (SimpleNamespace(group=group, name=name),), None, None, 9, 1, ())
    first = Recorded("uninterrupted-0", "resumed-0", found, True)
    assert message in diagnosis.resumed_differs(first).message


def test_important_differences_of_the_environment():
    rows = [
        ("critical", "variables/X", "changed", None, "1" * 90, "why"),
        ("low", "a", "changed", 1, 2, "b"),
    ]
    (found,) = diagnosis.read_environment(rows)
    assert found.message.startswith("variables/X was None in the first session and 111")
    assert found.message.endswith("1 in the last: why")


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
        "directory": tmp_path / "runs", "epochs": 2, "baseline": False,
    }  # fmt: skip
    monkeypatch.delenv("MKL_CBWR", raising=False)
    report = verify.verify(verify.Options(**given, runs=1))
    assert report.passed and report.environment == () and report.notes[1:] == ()
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    report = verify.verify(verify.Options(**given, runs=2))
    assert report.checks[0].differences[0].b == "uninterrupted-1"
    assert ("critical", "variables/MKL_CBWR") in [row[:2] for row in report.environment]
    found = [one.message for one in report.findings if one.kind == "environment"]
    assert any("variables/MKL_CBWR was None in the first session" in one for one in found)


RESUMING = """
import sys, torch
epochs, checkpoint, *resume = sys.argv[1:]
torch.manual_seed(7)
start = 0
if resume:
    held = torch.load(resume[0])
    start = held["epoch"]
    torch.set_rng_state(held["rng"])
batches = iter(torch.utils.data.DataLoader(range(8)))
for epoch in range(start, int(epochs)):
    print('{"step": %d, "loss": %r}' % (epoch, float(torch.rand(()))))
torch.save({"epoch": int(epochs), "rng": torch.get_rng_state()}, checkpoint)
"""


@pytest.mark.slow
def test_generators_of_a_resumed_run_in_words_drawn(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(RESUMING)
    command = [sys.executable, str(script), "{epochs}", "{checkpoint}", "[", "{resume}", "]"]
    options = verify.Options(
        command=command, directory=tmp_path / "runs", epochs=4, runs=1, baseline=False
    )
    report = verify.verify(options)
    (found,) = (one for one in report.findings if "last checkpoint" in one.message)
    assert found.message == (
        "the last checkpoint of resumed-0 against that of uninterrupted-0: "
        "torch.cpu 2 words further, as one `iter(DataLoader)` draws"
    )
    script.write_text(RESUMING.replace("DataLoader(range(8))", "DataLoader(range(8), generator=G)"
    ).replace("start = 0", "start, G = 0, torch.Generator()"))  # fmt: skip
    options = verify.Options(
        command=command, directory=tmp_path / "fixed", epochs=4, runs=1, baseline=False
    )
    assert verify.verify(options).findings == ()
