"""docs/migration/: the programs run."""

import argparse
import random
import re
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

accelerate = pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")

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
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return int(i), torch.rand(3)


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
        assert [held["loaders"][0][name] for name in ("epoch", "step")] == [1, 8]
    elif kind == "trainer":
        assert names["trainer"].state.global_step == 4
    elif kind == "mesh":
        assert not torch.equal(names["hidden"], names["inner"])


def test_the_accelerate_recipe_changes_four_lines():
    assert sum("  # was: " in line or "  # new" in line for line in PROGRAMS[2].splitlines()) == 4


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
