"""Explanations of differences claim no more than was observed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from fastseed.debug.bisection import Bisection
from fastseed.tools import verify
from fastseed.tools.verify import diagnosis
from fastseed.tools.verify.comparison import Recorded


def explained(b, group, name, start=False):
    """Return the explanation of a difference between ``uninterrupted-0`` and ``b`` at step 8."""
    differences = (SimpleNamespace(group=group, name=name),)
    found = Bisection(8, start, 0, differences, None, None, 9, 1, ())
    return diagnosis.explain_check("resume", Recorded("uninterrupted-0", b, found))


@pytest.mark.parametrize(
    ("b", "group", "name", "start", "message"),
    [
        ("resumed-0", "optimizer", "group 0.lr", False, "the optimizer's group 0.lr differs: its"),
        ("resumed-0", "gradient", "w", False, "its data differ, by order, augmentation"),
        ("resumed-0", "generator", "numpy", False, "generator numpy is in a different state: used"),
        ("resumed-0", "parameter", "w", True, "the checkpoint does not restore parameter w"),
        ("truncated-0", "generator", "numpy", True, "state: not seeded, or used a different numb"),
        ("truncated-0", "parameter", "w", True, "the initial weights differ: their initializa"),
    ],
)
def test_causes_that_were_observed(b, group, name, start, message):
    found = explained(b, group, name, start)
    assert message in found.message and found.where == f"{b}, step 8" and found.certain
    assert found.kind == ("resume" if b == "resumed-0" else "generator")


def test_arithmetic_is_the_last_explanation():
    found = explained("uninterrupted-1", "gradient", "w")
    assert (found.kind, found.certain) == ("arithmetic", False)
    assert "or a generator that is not registered" in found.message
    found = diagnosis.explain_check("repeat", None)
    assert (found.kind, found.certain) == ("tensor", False)


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
