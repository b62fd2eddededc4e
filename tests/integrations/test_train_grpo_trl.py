"""The TRL example: a run that is killed and resumed has the weights of the uninterrupted one."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.support import clean_environment

pytest.importorskip("trl", reason="trl is not installed (extra: trl)")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_grpo_trl.py"


def run(out: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--out", out, "--steps", "4", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=clean_environment(OMP_NUM_THREADS="1"),
    )
    return done.returncode, done.stdout.splitlines()[-1] if done.stdout else done.stderr


def test_a_killed_run_resumes(tmp_path):
    code, whole = run(tmp_path / "whole")
    assert code == 0 and whole.startswith("weights "), whole
    code, _ = run(tmp_path / "killed", "--kill", "2")
    assert code == -signal.SIGKILL and (tmp_path / "killed" / "checkpoint-2").is_dir()
    assert not (tmp_path / "killed" / "checkpoint-3").exists()
    assert run(tmp_path / "killed", "--resume") == (0, whole)
