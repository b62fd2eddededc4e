"""The GRPO example: rollout seeds learn, seeds by position in the chunk do not move a parameter."""

import json
import subprocess
import sys
from pathlib import Path

from helpers.support import clean_environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_grpo_rollouts.py"


def run(out: Path, *arguments: str) -> dict[str, tuple[list[float], str, str]]:
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--out", out, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=clean_environment(OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[list[float], str, str]] = json.loads((out / "rewards.json").read_text())
    return found


def test_two_steps(tmp_path):
    results = run(tmp_path, "--steps", "2")
    _, first, last = results["rollouts.seeds"]
    assert first != last
    _, start, end = results["chunk-local"]
    assert start == end == first


def test_rollouts_learn(tmp_path):
    results = run(tmp_path)
    rewards, _, _ = results["rollouts.seeds"]
    assert max(rewards[:5]) < 0.2 and min(rewards[-5:]) > 0.85
    stalled, start, end = results["chunk-local"]
    assert start == end and max(stalled) < 0.25
