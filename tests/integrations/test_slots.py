"""SlotGradients under Accelerate, the Trainer and Lightning: one result on any number of ranks."""

from __future__ import annotations

import pytest
import torch
import transformers
from helpers.processes import run_ranks

import fastseed
from fastseed.integrations.slot_trainer import SlotTrainer
from fastseed.integrations.transformers import FastseedCallback


def on_ranks(world_size, *arguments):
    ranks = run_ranks("slots_in_frameworks.py", world_size, *arguments)
    assert all(found == ranks[0] for found in ranks)
    return ranks[0]


@pytest.mark.integrations
def test_one_and_two_ranks_have_the_same_weights(tmp_path):
    one = on_ranks(1, tmp_path / "one")
    two = on_ranks(2, tmp_path / "two", tmp_path / "one" / "checkpoint-2")  # mid-epoch
    assert one.pop("control") != two.pop("control"), "torch's gradients: the negative control"
    assert one == two and len(set(one.values())) == len(one)


@pytest.mark.integrations
def test_a_lightning_strategy_without_its_wrapper():
    ranks = [run_ranks("slots_under_lightning.py", world_size) for world_size in (1, 2)]
    assert ranks[1] == ranks[0] * 2 and ranks[0][0][0] == 6


@pytest.fixture
def make(tmp_path):
    def make(slots=4, callbacks=None, **options):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), use_cpu=True, report_to=[], **options
        )
        return SlotTrainer(
            model=torch.nn.Linear(1, 1),
            args=arguments,
            train_dataset=torch.utils.data.TensorDataset(torch.zeros(8, 1)),
            callbacks=callbacks,
            slots=slots,
        )

    fastseed.init(42, rank=0, world_size=1)
    return make


def test_arguments(make):
    trainer = make(gradient_accumulation_steps=4, per_device_train_batch_size=2)
    assert len(trainer.get_train_dataloader()) == 4
    with pytest.raises(ValueError, match=r"SlotTrainer: slots must be in"):
        make(slots=0)
    with pytest.raises(ValueError, match=r"gradient_accumulation_steps must be 1 or 4, for 4 sl"):
        make(gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="callbacks must be without FastseedCallback"):
        make(callbacks=[FastseedCallback()])
    grouped = make(train_sampling_strategy="group_by_length")
    with pytest.raises((ValueError, TypeError)):
        grouped.get_train_dataloader()
