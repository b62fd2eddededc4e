"""Journals in files: found in any checkpoint without running its code, counted."""

import json
import pickle

import pytest
import torch
import torch.distributed.checkpoint as dcp
from helpers.histories import Job
from helpers.loaders import same
from torch.utils.data import DataLoader

import fastseed
from fastseed.data import Lineage
from fastseed.tools import checkpoints


def read_lineage(path, task=None):
    return checkpoints.inspect(path).lineage(task)


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def loop(n=40, batch=4, task=1, slots=None, **more):
    more = {"shuffle": True, "collate_fn": same, **more}
    return fastseed.data.steps(DataLoader(range(n), batch, **more), 2, task=task, slots=slots)


def after(count, **more):
    made = loop(**more)
    steps = iter(made)
    for _ in range(count):
        next(steps)
    return made


def test_files_of_every_kind_have_the_journal(tmp_path):
    made = after(7)
    state, expected = made.state_dict(), made.lineage().history
    made.lineage().save(tmp_path / "contract.json")
    (tmp_path / "state.json").write_text(json.dumps(state))
    torch.save({"model": torch.zeros(3), "deep": [{"steps": state}]}, tmp_path / "torch.pt")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps({"steps": state}))
    dcp.save({"model": {"w": torch.zeros(3)}, "steps": state}, checkpoint_id=tmp_path / "dcp")
    for name in ("contract.json", "state.json", "torch.pt", "plain.pkl", "dcp"):
        assert read_lineage(tmp_path / name).history == expected, name


def test_a_folder_of_files_as_a_trainer_writes_it(tmp_path):
    torch.save({"cpu": torch.get_rng_state()}, tmp_path / "rng_state.pth")
    (tmp_path / "trainer_state.json").write_text('{"global_step": 7, "loss": NaN}')
    (tmp_path / "optimizer.pt").write_bytes(b"PK damaged")
    for rank in range(2):
        torch.save(after(7).state_dict(), tmp_path / f"steps-{rank}.pt")
    assert read_lineage(tmp_path).history == after(7).lineage().history


def test_several_loops_are_chosen_by_task(tmp_path):
    first, second = after(3), after(5, task=2)
    torch.save({"a": first.state_dict(), "b": second.state_dict()}, tmp_path / "two.pt")
    with pytest.raises(ValueError, match=r"steps, .*it has 2; its tasks: \[1, 2\]"):
        read_lineage(tmp_path / "two.pt")
    assert read_lineage(tmp_path / "two.pt", task=2).history == second.lineage().history
    with pytest.raises(ValueError, match=r"journal of fastseed.data.steps of task 3.*\[1, 2\]"):
        read_lineage(tmp_path / "two.pt", task=3)


def test_files_without_a_journal_and_damaged_ones_are_refused(tmp_path):
    text = after(3).state_dict()["journal"]
    (tmp_path / "none.pt").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "cut.json").write_text(text[:-9])
    (tmp_path / "other.json").write_text(text.replace('"version":1', '"version":9'))
    held = {"good": text, "bad": {"journal": text.replace('"task":1', '"task":-1')}}
    (tmp_path / "damaged.pkl").write_bytes(pickle.dumps(held))
    for name, problem in (
        ("none.pt", "it has none"),
        ("cut.json", "it must be a whole JSON document"),
        ("other.json", "must be 1, as of this version"),
        ("damaged.pkl", r"damaged.pkl: bad: .*\['sha256'\] must be the digest"),
    ):
        with pytest.raises(ValueError, match=rf"checkpoints.inspect: path must be .*{problem}"):
            read_lineage(tmp_path / name)


def test_locate_counts_the_steps_of_random_histories():
    for seed in range(60):
        made = Job(seed).run()
        lineage = Lineage(made.history)
        whole = made.history._replace(skips=())
        counts = [max((s.last for s in whole.spans(e)), default=0) for e in range(made.epochs)]
        points = [(e, step) for e, count in enumerate(counts) for step in range(count)]
        assert {visit[:2] for visit in made.log} <= set(points)
        found = [checkpoints.locate(lineage, number) for number in range(len(points))]
        assert found == points, seed


def test_locate_refuses_steps_that_do_not_exist():
    lineage = loop().lineage()
    assert checkpoints.locate(lineage, 10 * 2**32 - 1) == (2**32 - 1, 9)
    for number, error in ((10 * 2**32, ValueError), (-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match=r"tools\.checkpoints\.locate: number must be"):
            checkpoints.locate(lineage, number)
