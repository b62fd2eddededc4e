"""Explanations of differences claim no more than was observed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from fastseed.debug.bisection import Bisection
from fastseed.tools import verify
from fastseed.tools.verify import diagnosis
from fastseed.tools.verify.comparison import Recorded
from fastseed.tools.verify.result import Check


@pytest.mark.parametrize(
    ("b", "group", "name", "start", "cause"),
    [
        ("resumed-0", "optimizer", "group 0.lr", False, "a schedule that was not restored (group"),
        ("resumed-0", "gradient", "w", False, "other data in the first resumed step, by order"),
        (
            "resumed-0",
            "generator",
            "numpy",
            False,
            "in other states at step 8 (numpy): used before",
        ),
        ("resumed-0", "parameter", "w", True, "the checkpoint does not restore parameter w: save"),
        ("truncated-0", "generator", "numpy", True, "in other states at step 8 (numpy): not seed"),
        ("truncated-0", "parameter", "w", True, "unseeded initial weights: call fastseed.reseed"),
        ("uninterrupted-1", "gradient", "w", False, "no recorded generator differed, so this is l"),
    ],
)
def test_causes(b, group, name, start, cause):
    differences = (SimpleNamespace(group=group, name=name),)
    found = Bisection(8, start, 0, differences, None, None, 9, 1, ())
    assert cause in diagnosis.explain_difference(Recorded("uninterrupted-0", b, found))


def test_without_recordings_the_cause_is_unknown():
    (cause,) = diagnosis.explain((Check("repeat", "", False, ""),), ())
    assert cause.startswith("unknown, no tensors were recorded: record the runs with")
    assert diagnosis.explain((Check("baseline", "", False, ""),), ()) == []


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
    assert report.passed and report.notes[1:] == ()
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    report = verify.verify(verify.Options(**given, runs=2))
    assert "uninterrupted-0 and uninterrupted-1 at step" in report.checks[0].message
    found = report.causes[-1]
    assert found.startswith("variables/MKL_CBWR was None in the first session and COMPATIBLE in")


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
    assert report.causes[-1] == (
        "the last checkpoint of resumed-0 against that of uninterrupted-0: "
        "torch.cpu 2 words further, as one `iter(DataLoader)` draws"
    )
    script.write_text(RESUMING.replace("DataLoader(range(8))", "DataLoader(range(8), generator=G)"
    ).replace("start = 0", "start, G = 0, torch.Generator()"))  # fmt: skip
    options = verify.Options(
        command=command, directory=tmp_path / "fixed", epochs=4, runs=1, baseline=False
    )
    assert verify.verify(options).causes == ()
