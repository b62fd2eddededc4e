"""Folders that Accelerate and torch.distributed.checkpoint wrote on two ranks."""

from __future__ import annotations

import pytest
from helpers.processes import run_ranks

from fastseed.tools import checkpoints

pytest.importorskip("accelerate")
pytestmark = pytest.mark.integrations
STREAMS = ("numpy", "python", "torch.cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("ranks")
    run_ranks("rng_folders.py", 2, made)
    return made


def owned(found):
    return [(one.owner, one.stream, one.writer) for one in found.states]


def test_a_resume_of_accelerate_draws_for_its_data_loader(folder):
    found = checkpoints.inspect(folder / "saved")
    assert found and owned(found) == [(f"rank {r}", s, None) for r in (0, 1) for s in STREAMS]
    found = checkpoints.compare(folder / "whole", folder / "resumed")
    assert [one.name for one in found] == ["rank 0 torch.cpu", "rank 1 torch.cpu"]
    text = "2 words further, as one `iter(DataLoader)` draws"
    assert [one.text for one in found] == [text] * 2


def test_ranks_that_save_under_one_name_to_a_distributed_checkpoint(folder):
    found = checkpoints.inspect(folder / "dcp-shared")
    assert len(found.states) == 3 and {one.owner for one in found.states} == {""}
    assert any("it holds the states of 1 rank for 2 ranks" in line for line in found.findings)
    found = checkpoints.inspect(folder / "dcp-ranks")
    assert found and owned(found) == [(f"rank {r}", s, r) for r in (0, 1) for s in STREAMS]
    assert checkpoints.compare(folder / "resumed", folder / "dcp-ranks") == []
