"""Hundreds of kills in simulated time: what the chain of checkpoints has trained."""

import functools
from pathlib import Path
from typing import Any

import pytest
from helpers.rollout_jobs import Job

PROMPTS, SAMPLES = 500, 2
UNITS = PROMPTS * SAMPLES


def run(seed: int = 1, *, kills: int = 10**6, **options: Any) -> Job:
    options = {"prompts": PROMPTS, "batch_size": 4, "samples": SAMPLES, **options}
    return Job(kills=kills, seed=seed, **options).run()


def is_complete(job: Job, units: int = UNITS) -> bool:
    """Return whether each unit was trained once, in the chain that led to the result."""
    trained = job.trained()
    return len(trained) == units and set(trained.values()) == {1}


@functools.cache
def uninterrupted(lag: int) -> Job:
    return run(kills=0, lag=lag)


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_strict_batches_and_weights_are_those_without_kills(lag, seed):
    killed, whole = run(seed, lag=lag), uninterrupted(lag)
    assert sum(killed.killed.values()) > 80 and len(killed.killed) == 5  # at each point
    assert is_complete(killed) and killed.changed == 0
    assert killed.chain == whole.chain
    assert killed.weights[max(killed.weights)] == whole.weights[max(whole.weights)]
    assert sum(killed.generated.values()) > UNITS  # work was repeated


def test_a_window_trains_each_unit_once():
    killed = run(window=3, lag=2)
    assert is_complete(killed) and killed.chain != uninterrupted(2).chain
    assert killed.changed > 0  # without a file, other prompts come first the second time


@pytest.mark.parametrize("window", [1, 3])
def test_a_file_of_results_gives_the_same_batches_and_keeps_them(window, tmp_path):
    file: dict[str, Path] = {"results": tmp_path / "results"}
    options = {"prompts": 200, "window": window, "lag": 2}
    kept, lost = run(3, **options, **file), run(3, **options)
    for job in (kept, lost):
        assert sum(job.killed.values()) > 30 and is_complete(job, 200 * SAMPLES)
    assert kept.changed == 0
    again = [sum(job.generated.values()) / 400 for job in (kept, lost)]
    assert again[0] < again[1]  # less work was repeated
