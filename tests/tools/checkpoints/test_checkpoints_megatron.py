"""Folders that Megatron-core wrote: ranks that resume on the stream of another rank."""

from __future__ import annotations

import shutil

from helpers.paths import ROOT

from fastseed.tools import checkpoints

FOLDERS = ROOT / "tests" / "vectors" / "megatron"
STREAMS = {"numpy", "python", "torch.cpu", "torch.cuda"}
TRACKED = {f"torch.cuda.{name}-rng" for name in ("default", "expert-parallel", "model-parallel")}


def compare(a, b):
    return checkpoints.compare_states(checkpoints.inspect(a), checkpoints.inspect(b))


def test_states_of_one_rank_for_four():
    found = checkpoints.inspect(FOLDERS / "shared")
    assert {one.stream for one in found.states} == STREAMS | TRACKED
    assert {(one.owner, one.writer) for one in found.states} == {("shard 0.0 of 1.1", 0)}
    assert found.findings == (
        "it holds the states of 1 rank for 4 ranks: right only for streams that these ranks share",
    )


def test_states_of_every_rank():
    found = checkpoints.inspect(FOLDERS / "own")
    assert {one.owner for one in found.states} == {f"shard 0.0.{r} of 1.1.4" for r in range(4)}
    (finding,) = found.findings
    assert "have one state" in finding and "expert-parallel-rng" not in finding
    seeds = [
        one.state.seed for one in found.states if one.stream == "torch.cuda.expert-parallel-rng"
    ]
    assert seeds == [1025, 1125, 1225, 1325]


def test_three_of_four_ranks_resumed_on_the_stream_of_rank_0():
    found = compare(FOLDERS / "before", FOLDERS / "after")
    assert [(one.name, one.text) for one in found] == [
        (f"rank {rank} torch.cuda.expert-parallel-rng", "it has the state of rank 0")
        for rank in (1, 2, 3)
    ]
    (finding,) = (
        one for one in checkpoints.inspect(FOLDERS / "after").findings if "expert-parallel" in one
    )
    assert "rank 0, rank 1, rank 2, rank 3 have one state" in finding
    assert compare(FOLDERS / "before", FOLDERS / "before") == []


def test_the_older_layout_has_a_folder_for_each_model_parallel_rank(tmp_path):
    for rank in (0, 1):
        (tmp_path / f"mp_rank_0{rank}").mkdir()
        source = FOLDERS / "before" / f"rng_state_{rank}.pth"
        shutil.copy(source, tmp_path / f"mp_rank_0{rank}" / "model_optim_rng.pt")
    owners = {one.owner for one in checkpoints.inspect(tmp_path).states}
    assert owners == {"mp_rank_00", "mp_rank_01"}
