"""What changes around the runs, between the first and the last time that some were started."""

from __future__ import annotations

import sys

from fastseed.tools import verify

SCRIPT = """
import json, os, sys
factor = 1.5 if os.environ.get("MKL_CBWR") else 1.0
for epoch in range(int(sys.argv[1])):
    print(json.dumps({"epoch": epoch, "loss": factor / (epoch + 1)}))
"""


def test_a_variable_that_changed_between_two_sessions_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("MKL_CBWR", raising=False)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-S", str(script), "{epochs}", "--run={run}"]
    options = {"directory": tmp_path / "runs", "epochs": 2, "control": False, "probe": False}
    report = verify.verify(command, runs=1, **options)
    assert report.environment == ()
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    report = verify.verify(command, runs=2, **options)
    assert not report.passed and report.checks[0].differences[0].b == "whole-1"
    paths = {row[1]: row[0] for row in report.environment}
    assert paths["variables/MKL_CBWR"] == "critical"
    found = [one for one in report.findings if one.kind == "environment"]
    assert any("variables/MKL_CBWR was not there at first" in one.says for one in found)
    assert {run.name for run in report.of("whole")} == {"whole-0", "whole-1"}
