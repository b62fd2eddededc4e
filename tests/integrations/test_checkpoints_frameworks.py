"""Checkpoints that Accelerate, Lightning and torch.distributed.checkpoint wrote."""

import pytest
from helpers.processes import run_ranks
from torch.utils.data import DataLoader

import fastseed
from fastseed.tools import checkpoints

accelerate = pytest.importorskip("accelerate")
STREAMS = ("numpy", "python", "torch.cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("ranks")
    run_ranks("rng_folders.py", 2, made)
    return made


def compare(a, b):
    return checkpoints.compare_states(checkpoints.inspect(a), checkpoints.inspect(b))


def owned(found):
    return [(one.owner, one.stream) for one in found.states]


def test_a_resume_of_accelerate_draws_for_its_data_loader(folder):
    found = checkpoints.inspect(folder / "saved")
    assert found and owned(found) == [(f"rank {r}", s) for r in (0, 1) for s in STREAMS]
    found = compare(folder / "whole", folder / "resumed")
    assert [one.name for one in found] == ["rank 0 torch.cpu", "rank 1 torch.cpu"]
    text = "the same seed, another number of draws"
    assert [one.text for one in found] == [text] * 2


def test_ranks_that_save_under_one_name_to_a_distributed_checkpoint(folder):
    found = checkpoints.inspect(folder / "dcp-shared")
    assert len(found.states) == 3 and {one.owner for one in found.states} == {""}
    assert any("it holds the states of 1 rank for 2 ranks" in line for line in found.findings)
    found = checkpoints.inspect(folder / "dcp-ranks")
    assert found and owned(found) == [(f"rank {r}", s) for r in (0, 1) for s in STREAMS]
    assert compare(folder / "resumed", folder / "dcp-ranks") == []


def test_a_checkpoint_of_accelerate(tmp_path):
    fastseed.init(42, rank=0, world_size=1)
    accelerator = accelerate.Accelerator(cpu=True)
    steps = fastseed.data.steps(DataLoader(range(20), batch_size=4, shuffle=True), 1)
    accelerator.register_for_checkpointing(steps)
    _, _, batch = next(iter(steps))
    accelerator.save_state(tmp_path / "saved")
    lineage = checkpoints.inspect(tmp_path / "saved").lineage()
    assert lineage.at(0, 0).sample.tolist() == batch.tolist()


def test_a_checkpoint_of_lightning(tmp_path):
    lightning = pytest.importorskip("lightning")
    fastseed.init(42, rank=0, world_size=1)
    steps = fastseed.data.steps(DataLoader(range(20), batch_size=4, shuffle=True), 1)
    next(iter(steps))

    class Module(lightning.LightningModule):
        def on_save_checkpoint(self, checkpoint):
            checkpoint["steps"] = steps.state_dict()

    trainer = lightning.Trainer(accelerator="cpu", logger=False, barebones=True)
    trainer.strategy.connect(Module())
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    assert checkpoints.inspect(tmp_path / "last.ckpt").lineage().history == steps.lineage().history
