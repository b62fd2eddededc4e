"""docs/migration/: the programs run, and what its tables say of the others is so."""

from __future__ import annotations

import argparse
import random
import re
from itertools import chain
from pathlib import Path

import accelerate
import lightning_fabric.utilities.seed as fabric_seed
import numpy as np
import pytest
import pytorch_lightning
import torch
import transformers
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import fastseed
from fastseed.data import Loader, ShuffleSampler

PAGES = Path(__file__).resolve().parents[2] / "docs" / "migration"
NAMES = ("fwr13y", "lightning", "accelerate", "trainer", "megatron", "distributed-sampler")
TEXT = "\n".join((PAGES / f"{name}.md").read_text() for name in NAMES)
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def ambient(monkeypatch):
    """seed_everything sets variables; an accelerator is the process's."""
    for variable in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    transformers.logging.set_verbosity_error()
    yield
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


class Points(Dataset):
    def __init__(self, keyed=False):
        self.keyed = keyed

    def __len__(self):
        return 16

    def __getitem__(self, i):
        point = torch.rand(3)
        return {"index": torch.tensor(int(i)), "point": point} if self.keyed else (int(i), point)


class Model(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, index):
        return self.layer(torch.nn.functional.dropout(batch[1])).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
KINDS = ["seeder", "lightning", "accelerate", "trainer", "mesh"]


@pytest.mark.parametrize(("kind", "program"), [*zip(KINDS, PROGRAMS, strict=True)], ids=KINDS)
def test_programs_run_as_they_are(kind, program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "pasted"}
    exec(compile(program, "migration", "exec"), names)
    if kind == "lightning":
        assert names["trainer"].current_epoch == 2
    elif kind == "accelerate":
        assert names["job"].epoch == 2 and names["outputs"].shape == (2, 1)
        assert names["scheduler"].scheduler.last_epoch == 2 * 3  # of 8 batches by 3, in 2 epochs
        held = torch.load(tmp_path / "checkpoint" / "custom_checkpoint_0.pkl", weights_only=True)
        assert (held["epoch"], held["steps"]["step"]) == (1, 8)
    elif kind == "trainer":
        assert names["trainer"].state.global_step == 4
    elif kind == "mesh":
        assert not torch.equal(names["hidden"], names["inner"])


def test_the_accelerate_recipe_changes_ten_lines_at_most():
    assert sum("  # was: " in line or "  # new" in line for line in PROGRAMS[2].splitlines()) <= 10


def test_the_change_of_a_script_runs_before_and_after():
    """Before: three seeds and set_epoch. After: five lines of fastseed."""
    (change,) = re.findall(r"```diff\n(.*?)```", TEXT, re.DOTALL)
    lines = change.splitlines()
    before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    assert sum(line.startswith("+") and line != "+" for line in lines) <= 10
    args = argparse.Namespace(seed=42, rank=0, world_size=1, workers=0, epochs=2)
    runs = []
    for script in (before, after):
        seen = []
        names = {
            **{"torch": torch, "np": np, "random": random, "DataLoader": DataLoader},
            "DistributedSampler": DistributedSampler,
            "step": lambda model, optimizer, batch, seen=seen: seen.append(batch[0].tolist()),
        }
        exec(compile(script, "migration", "exec"), names)
        names["main"](args, Points(), None, None)
        runs.append(seen)
    for seen in runs:
        epochs = [[*chain(*seen[:2])], [*chain(*seen[2:])]]
        assert all(sorted(epoch) == list(range(16)) for epoch in epochs) and epochs[0] != epochs[1]


# ---------------------------------------------------------------- DistributedSampler


def of(sampler, epoch=None):
    if epoch is not None:
        sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.proof
def test_distributed_sampler():
    def sampler(seed, rank=0, ranks=1):
        return DistributedSampler(range(12), ranks, rank, seed=seed)

    assert of(sampler(42), 1) == of(sampler(43), 0)
    forgetful = sampler(42)
    assert of(forgetful) == of(forgetful)
    for ranks in (2, 3):
        shares = [of(sampler(42, rank, ranks)) for rank in range(ranks)]
        assert [*chain(*zip(*shares, strict=True))] == of(sampler(42))

    def order(seed, epoch):
        fastseed.init(seed)
        return of(ShuffleSampler(12), epoch)

    assert order(42, 1) != order(43, 0)
    fastseed.init(42)
    with pytest.raises(RuntimeError, match="call fastseed.reseed"):  # noqa: RUF043
        of(ShuffleSampler(12))
    fastseed.reseed(task=0)
    assert of(ShuffleSampler(12)) == order(42, 0)
    shares = [of(ShuffleSampler(12, rank=rank, world_size=3), 0) for rank in range(3)]
    assert [*chain(*zip(*shares, strict=True))] == order(42, 0)


# ---------------------------------------------------------------- Lightning


class Holding(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 32

    def __getitem__(self, i):
        return float(self.rng.random())


@pytest.mark.proof
def test_a_generator_of_the_data_set():
    def drawn(batches):
        return len({x for batch in batches for x in batch.tolist()})

    seeded = dict(num_workers=2, worker_init_fn=fabric_seed.pl_worker_init_function)
    assert drawn(DataLoader(Holding(), 4, **seeded)) == 16
    fastseed.init(42)
    fastseed.reseed(1)
    assert drawn(Loader(Holding(), 4, num_workers=2)) == 32


@pytest.mark.proof
def test_a_lightning_run_that_is_resumed_without_us(tmp_path):
    seen = []

    class Writing(Model):
        def training_step(self, batch, index):
            seen.append(float(torch.rand(())))
            return super().training_step(batch, index)

    def run(epochs, path=None):
        pytorch_lightning.seed_everything(42, verbose=False)
        trainer = pytorch_lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
        trainer.fit(Writing(), DataLoader(Points(), 4), ckpt_path=path)
        trainer.save_checkpoint(tmp_path / "x.ckpt")

    run(2)
    whole = seen[:]
    seen.clear()
    run(1)
    seen.clear()
    held = torch.load(tmp_path / "x.ckpt", weights_only=True)
    assert not any("rng" in key or "random" in key or "seed" in key for key in held)
    run(2, tmp_path / "x.ckpt")
    assert seen != whole[4:] and seen == whole[:4]
