"""No call, and no sequence of calls, ends the process, hangs, or changes what it must not."""

import json

import pytest
from helpers.paths import ROOT, SCRIPTS
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
    for kind in ("crashes", "hangs", "internal", "unclear", "changed", "silent"):
        assert found[kind] == [], kind
    assert found["refused"] > calls / 3
    assert calls < 2000 or len(found["never_called"]) < 10


@pytest.mark.slow
def test_sequences_of_calls_blocks_failures_and_interrupts_are_as_a_model_says():
    done = Script(ROOT / "tests/statistics/hostile.py", 1, 2000).wait(timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == [] and found["operations"] == 2000
    assert len(found["made"]) > 13 and min(found["made"].values()) > 5  # each kind, interrupts too
