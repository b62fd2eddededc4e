"""No call of a public function or an operator ends the process, whatever tensors it is given."""

from __future__ import annotations

import json

import pytest
from helpers.paths import SCRIPTS
from helpers.processes import Script


@pytest.mark.parametrize(
    ("seed", "calls"),
    [(0, 1200), *(pytest.param(seed, 4000, marks=pytest.mark.slow) for seed in range(1, 7))],
)
def test_hostile_tensors_raise_clear_errors(seed, calls, tmp_path):
    """In a process of its own: the log's last line names the call that ended it."""
    log = tmp_path / "calls"
    done = Script(SCRIPTS / "fuzz_calls.py", seed, calls, log).wait(timeout=280)
    last = log.read_text().splitlines()[-1] if log.exists() else "before the first call"
    assert done.returncode == 0, f"{last}\nreturned {done.returncode}\n{done.stderr[-2000:]}"
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["calls"] == calls and found["raised"] > calls / 3
    assert found["unclear"] == []
