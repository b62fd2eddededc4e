"""The test suite itself: hangs become failures, and bounds of pyproject.toml can be installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from helpers import matrix
from helpers.isolation import unchanged_process
from helpers.paths import ROOT
from helpers.processes import Script, clean_environment

import fastseed

HANGS = """
import signal, threading, time, pytest

def waits_for_ever():
    threading.Event().wait()

@pytest.mark.timeout(1)
def test_waits():
    threading.Thread(target=waits_for_ever, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # no handler runs, as in native code
    time.sleep(100)
"""


def test_watchdog_ends_a_test_that_no_signal_ends_with_every_stack(tmp_path):
    (tmp_path / "test_hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "helpers.watchdog", "-p", "no:xdist"]
    environment = clean_environment()
    environment["PYTHONPATH"] = f"{ROOT / 'tests'}:{environment['PYTHONPATH']}"
    done = subprocess.run(
        [*command, str(tmp_path)], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "in waits_for_ever" in done.stderr and "in test_waits" in done.stderr


@pytest.mark.parametrize("fresh", [False, True])
def test_a_script_that_hangs_is_reported_with_its_stack(tmp_path, fresh):
    script = tmp_path / "hangs.py"
    script.write_text(
        "import time\ndef waits_for_ever():\n    time.sleep(1000)\nprint('here', flush=True)\n"
        "waits_for_ever()\n"
    )
    process = Script(script, fresh=fresh)
    with pytest.raises(TimeoutError, match=r"(?s)ran for 2 s\nhere.*in waits_for_ever"):
        process.wait(2)


def test_a_test_leaves_no_switch_variable_or_number_behind(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with unchanged_process():
        following = torch.rand(3)
    with unchanged_process():
        fastseed.enforce_reproducibility(7)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.equal(torch.rand(3), following)
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    assert torch.equal(torch.rand(3), following)


def test_matrix_has_a_lowest_version_of_every_requirement():
    names = {bound.partition("==")[0] for bound in matrix.oldest()}
    pinned = {
        requirement.name
        for requirement in matrix.requirements()
        if any(bound.operator == "==" for bound in requirement.specifier)
    }
    every = {requirement.name for requirement in matrix.requirements()}
    unbounded = {"ninja", "ziglang", "jax"}  # build tools and benchmarks
    assert every - names - pinned == unbounded
    assert "numpy==2.0.*" in matrix.oldest() and "torch==2.10.*" in matrix.oldest()
    assert matrix.oldest_python() == "3.10"
