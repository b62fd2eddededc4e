"""Rollouts of other processes: killed at random, and on Ray."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.support import clean_environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytest.importorskip("transformers")


def run(out: Path, script: str, *arguments: str, file: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), "--out", str(out), *arguments],
        capture_output=True, text=True, timeout=1800, env=clean_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((out / file).read_text())
    return found


@pytest.mark.timeout(1800)  # it takes 20 s on two quiet cores
def test_kills_lose_and_repeat_no_rollout(tmp_path):
    found = run(tmp_path, "chaos_rollouts.py", "--kills", "4", "--epochs", "1", file="results.json")
    assert found["kills"] >= 4 and found["attempts"] > 1
    assert found["lost"] == found["repeated"] == 0
    assert found["different_batches"] == found["different_texts"] == 0
    assert found["equal_weights"]


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_ray_actors_that_die_change_no_weights(tmp_path):
    pytest.importorskip("ray", reason="needs the extra fastseed[ray]")
    arguments = ("train_rollouts_ray.py", "--epochs", "1")
    whole = run(tmp_path / "a", *arguments, file="result.json")
    killed = run(tmp_path / "b", *arguments, "--kill-actors", "3", file="result.json")
    plain = run(tmp_path / "c", "train_rollouts.py", "--epochs", "1", file="result.json")
    assert whole["weights"] == killed["weights"] == plain["weights"]
