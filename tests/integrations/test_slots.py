"""SlotGradients under Accelerate, the Trainer and Lightning: one result on any number of ranks."""

import pytest
import torch
from helpers.paths import EXAMPLES
from helpers.processes import run_ranks

import fastseed

transformers = pytest.importorskip("transformers")


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


@pytest.mark.integrations
def test_arguments_of_the_example(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    from train_slots_trainer import SlotTrainer

    def make(slots=4, **options):
        out = str(tmp_path)
        arguments = transformers.TrainingArguments(out, use_cpu=True, report_to=[], **options)
        data = torch.utils.data.TensorDataset(torch.zeros(8, 1))
        model = torch.nn.Linear(1, 1)
        return SlotTrainer(model=model, args=arguments, train_dataset=data, slots=slots)

    fastseed.init(42, rank=0, world_size=1)
    trainer = make(gradient_accumulation_steps=4, per_device_train_batch_size=2)
    assert len(trainer.get_train_dataloader()) == 4
    with pytest.raises(ValueError, match="slots must be a multiple of the 1 ranks, got 0"):
        make(slots=0)
    with pytest.raises(ValueError, match="gradient_accumulation_steps must be 1 or 4"):
        make(gradient_accumulation_steps=2)
    grouped = make(train_sampling_strategy="group_by_length")
    with pytest.raises((ValueError, TypeError)):
        grouped.get_train_dataloader()
