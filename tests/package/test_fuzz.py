"""No call of a public function or operator ends the process, hangs, or changes what it refuses."""

from __future__ import annotations

import json

import pytest
from helpers.paths import SCRIPTS
from helpers.processes import Script


@pytest.mark.parametrize(
    ("seed", "calls"),
    [(0, 300), pytest.param(1, 2500, marks=pytest.mark.slow)],
)
def test_hostile_calls_are_refused_and_change_nothing(seed, calls):
    """In child processes, one after the other: a call that ends its process is named."""
    done = Script(SCRIPTS / "fuzz_calls.py", seed, calls).wait(timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"seed {found['seed']}, {found['calls']} calls, {found['seconds']} s")
    for kind in ("crashes", "hangs", "internal", "unclear", "changed"):
        assert found[kind] == [], kind
    assert found["refused"] > calls / 3
    assert calls < 2000 or len(found["never_called"]) < 10
