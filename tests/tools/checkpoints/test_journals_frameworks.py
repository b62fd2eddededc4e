"""Journals in the checkpoints that Accelerate and Lightning write."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

import fastseed
from fastseed.tools import checkpoints

pytestmark = pytest.mark.integrations


def test_a_checkpoint_of_accelerate(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    fastseed.init(42, rank=0, world_size=1)
    accelerator = accelerate.Accelerator(cpu=True)
    steps = fastseed.data.steps(DataLoader(range(20), batch_size=4, shuffle=True), 1)
    accelerator.register_for_checkpointing(steps)
    _, _, batch = next(iter(steps))
    accelerator.save_state(tmp_path / "saved")
    assert checkpoints.read_lineage(tmp_path / "saved").at(0, 0).sample.tolist() == batch.tolist()


def test_the_division_of_accelerated_job_is_not_a_known_order(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    from fastseed.integrations.accelerate import AcceleratedJob

    accelerator = accelerate.Accelerator(cpu=True)
    job = AcceleratedJob(accelerator, 42)
    loader = accelerator.prepare(DataLoader(torch.arange(20), batch_size=4, shuffle=True))
    for step, _ in job.train(loader, 0):
        if step == 2:
            accelerator.save_state(tmp_path / "saved")
    lineage = checkpoints.read_lineage(tmp_path / "saved")
    assert lineage.history.point == (0, 3)
    with pytest.raises(ValueError, match="the order of epoch 0 must be a ShuffleSampler"):
        lineage.at(0, 0)


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
    assert checkpoints.read_lineage(tmp_path / "last.ckpt").history == steps.lineage().history
