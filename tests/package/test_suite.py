"""The test suite itself: hangs become failures, and bounds of pyproject.toml can be installed."""

import os
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from helpers import matrix
from helpers.isolation import unchanged_process
from helpers.paths import ROOT
from helpers.processes import Script, clean_environment
from helpers.ranks import ranks

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


def fail_or_hang(how):
    if dist.get_rank() == 1:
        assert how != "fail", "of one rank"
        os._exit(3) if how == "end" else time.sleep(100)
    dist.barrier()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("fail", "rank 1:\nTraceback.*AssertionError: of one rank.*rank 0 printed:.*in barrier"),
        ("end", "rank 1:\nended"),
        ("hang", "have not answered in 2 s.*rank 1 printed:.*in fail_or_hang"),
    ],
)
def test_a_rank_that_fails_ends_its_pool_with_its_stack(how, says):
    with pytest.raises(AssertionError, match=f"(?s){says}"):
        ranks(2, fail_or_hang, how, timeout=60 if how == "fail" else 2)
    assert ranks(2, dist.get_rank) == [0, 1]


def initialize():
    fastseed.enforce_reproducibility(7)
    os.environ["RANK"] = "7"


def state():
    switch = torch.are_deterministic_algorithms_enabled()
    return fastseed.derivation.context.seeder, switch, "RANK" in os.environ, torch.rand(3)


def test_a_function_on_ranks_finds_nothing_of_the_one_before():
    before = ranks(2, state)
    ranks(2, initialize)
    assert repr(ranks(2, state)) == repr(before)
    assert before[0][:3] == (None, False, False)


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
