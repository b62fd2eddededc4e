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


def test_every_rank_hears_of_a_failure(job):
    by_rank = [rank["errors"] for rank in job["saved"]]
    first, *others = [errors[0] for errors in by_rank]
    assert first.startswith("FileNotFoundError: fastseed.checkpoint.save: path must be in a folder")
    for said in others:
        assert said.startswith("RuntimeError: fastseed.checkpoint.save: rank 0 could not write")
    failing = [errors[1] for errors in by_rank]
    assert failing.pop(2).startswith("ZeroDivisionError")
    for said in failing:
        assert (
            said == "RuntimeError: fastseed.checkpoint.save: ranks [2] could not give their state"
        )


def test_saving_on_rank_0_alone_says_that_every_rank_has_to(tmp_path):
    said, files = run_script("checkpoint_alone.py", tmp_path)
    assert said.startswith("fastseed.checkpoint.save: the ranks did not meet; every rank has to")
    assert files == ["store"]
