"""Checkpoints of four ranks, loaded by four, two and eight: own files and distributed ones."""

from __future__ import annotations

import pytest
from helpers.support import run_script

SAVED = 4
EXACT = ("one", "pattern", "dcp", "dcp reader")
COORDINATES = ("one coordinates", "dcp coordinates")
THREE = slice(0, 3)  # python, numpy, torch.cpu; the fourth is shared by all ranks


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return run_script("reshard.py", tmp_path_factory.mktemp("reshard"), timeout=150)


@pytest.mark.parametrize("size", [4, 2, 8])
@pytest.mark.parametrize("way", EXACT + COORDINATES)
def test_coordinates_carry_over(job, size, way):
    assert all(rank[way]["scope"] == [1, 5, 0, 42] for rank in job[str(size)])


@pytest.mark.parametrize("size", [4, 2, 8])
@pytest.mark.parametrize("way", COORDINATES)
def test_coordinates_begin_the_scope(job, size, way):
    for rank in job[str(size)]:
        assert rank[way]["states"] == rank["begin"]["states"] and not rank[way]["said"]


@pytest.mark.parametrize("size", [4, 2, 8])
@pytest.mark.parametrize("way", EXACT)
def test_ranks_that_are_still_there_go_on_exactly(job, size, way):
    for rank in range(min(size, SAVED)):
        assert job[str(size)][rank][way]["states"] == job["saved"][rank]["states"]


@pytest.mark.parametrize("way", EXACT)
def test_new_ranks_begin_the_scope_and_say_so(job, way):
    for rank in range(SAVED, 8):
        found = job["8"][rank]
        assert found[way]["states"][THREE] == found["begin"]["states"][THREE]
        (said,) = found[way]["said"]
        assert f"are other ranks' and this is rank {rank}: its generators are set to" in said
    assert not any(job["8"][rank][way]["said"] for rank in range(SAVED))


@pytest.mark.parametrize("size", [4, 2, 8])
@pytest.mark.parametrize("way", EXACT)
def test_nothing_is_shared_but_what_shall_be(job, size, way):
    by_rank = [rank[way]["states"] for rank in job[str(size)]]
    for generator in range(3):
        assert len({states[generator] for states in by_rank}) == size
    assert {states[3] for states in by_rank} == {job["saved"][0]["states"][3]}


@pytest.mark.parametrize("way", EXACT)
def test_dropped_states_are_named_once(job, way):
    first, second = (rank[way]["said"] for rank in job["2"])
    assert len(first) == 1 and "the exact states of ranks 2 to 3 are dropped" in first[0]
    assert second == []
    assert not any(rank[way]["said"] for rank in job["4"])


def test_a_distributed_checkpoint_without_source_is_refused_by_torch_on_more_ranks(job):
    for size in (4, 2):
        for rank in range(size):
            found = job[str(size)][rank]["dcp without source"]
            assert found["states"] == job["saved"][rank]["states"]
    for rank in job["8"]:
        assert "Missing key in checkpoint state_dict" in rank["dcp without source"]["error"]


def test_a_failure_is_raised_on_every_rank(job):
    by_rank = [rank["errors"] for rank in job["saved"]]
    first, *others = [errors[0] for errors in by_rank]
    reason = "FileNotFoundError: fastseed.checkpoint.save: path must be in a folder"
    assert first.startswith(reason)
    prefix = "RuntimeError: fastseed.checkpoint.save: another rank failed: "
    for text in others:
        assert text.startswith(f"{prefix}rank 0: {reason}")
    failing = [errors[1] for errors in by_rank]
    assert failing.pop(2).startswith("ZeroDivisionError")
    for text in failing:
        assert text == f"{prefix}rank 2: ZeroDivisionError: division by zero"


def test_missing_ranks_are_named_in_time(tmp_path):
    """One of two ranks saves; the time-out of the process group is much longer."""
    text, files, seconds = run_script("checkpoint_alone.py", tmp_path)
    assert "rank 1 did not call" in text
    assert files == ["store"] and seconds < 30
