"""The job under Accelerate, against the real package: stopped and resumed runs, phases, orders."""

from __future__ import annotations

import hashlib
from itertools import chain

import accelerate
import numpy as np
import pytest
import torch
from accelerate import Accelerator
from helpers.processes import run_ranks
from helpers.support import snapshot
from torch.utils.data import DataLoader, Dataset

import fastseed
from fastseed.data.plain_loader import loader
from fastseed.data.resumable_loader import ResumableLoader
from fastseed.data.sampler import ShuffleSampler
from fastseed.integrations import Tasks, inside
from fastseed.integrations.accelerate import AcceleratedJob
from fastseed.tools import rng_states

pytestmark = pytest.mark.filterwarnings("ignore")
N, BATCH, EPOCHS = 12, 3, 3
STEPS = N // BATCH


@pytest.fixture(autouse=True)
def one_accelerator_at_a_time():
    yield
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


class Points(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        return int(i), torch.rand(3) + np.random.rand()


def run(folder=None, save_at=None, resume=False, validate=True, own=None):
    """A script; what each step saw and drew, and the digest of its parameters."""
    accelerator = Accelerator(cpu=True)
    fastseed.derivation.context.seeder = None
    job = AcceleratedJob(accelerator, 42)
    if own is not None:
        fastseed.register_generator(own, name="own")
    model = torch.nn.Linear(3, 1)
    batches = ResumableLoader(Points(), batch_size=BATCH, shuffle=True)
    held_out = loader(Points(), batch_size=6)
    accelerator.register_for_checkpointing(batches)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    first = 0
    if resume:
        accelerator.load_state(folder)
        first = job.epoch
    seen, checked = [], []
    for epoch in range(first, EPOCHS):
        job.train(epoch)
        for indices, points in batches:
            kept = torch.nn.functional.dropout(points.float(), 0.5)
            drawn = None if own is None else own.random()
            seen.append((epoch, indices.tolist(), float(torch.rand(())), drawn))
            accelerator.backward((model(kept) ** 2).mean())
            optimizer.step()
            optimizer.zero_grad()
            if validate and len(seen) % 3 == 0:
                with job.validate(epoch):
                    checked += [float(torch.rand(())) for _ in held_out]
                    if len(seen) == save_at:
                        accelerator.save_state(folder)
            elif len(seen) == save_at:
                accelerator.save_state(folder)
    held = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return seen, hashlib.sha256(held).hexdigest(), checked


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 6, 7, 8, 11, 12])
def test_a_run_that_goes_on_is_the_same_run(tmp_path, step):
    own = np.random.default_rng()
    seen, digest, _ = run(tmp_path, save_at=step, own=own)
    rest, same, _ = run(tmp_path, resume=True, own=np.random.default_rng())
    assert rest == seen[step:] and same == digest


def test_validation_leaves_training_alone():
    seen, digest, checked = run()
    assert run(validate=False)[:2] == (seen, digest)
    draws = [entry[2] for entry in seen]
    assert len({*draws}) == len(draws) and set(draws).isdisjoint(checked) and checked


def test_phases_have_tasks_of_their_own():
    accelerator = Accelerator(cpu=True)
    tasks = Tasks(init=10, train=11, validate=12, test=13, predict=14)
    job = AcceleratedJob(accelerator, 42, tasks=tasks)
    assert tuple(fastseed.derivation.context.seeder.scope) == (10, 0, 0)
    job.train(3)
    torch.rand(1)
    before, places = snapshot(), []
    for phase in (job.validate(3), job.test(), job.predict(1)):
        with phase:
            places.append(tuple(fastseed.derivation.context.seeder.scope))
            assert job.epoch == 3  # what would be saved is training
            torch.rand(1)
        assert snapshot() == before
    assert places == [(12, 3, 0), (13, 0, 0), (14, 1, 0)]
    assert tuple(fastseed.derivation.context.seeder.scope) == (11, 3, 0)


def test_inside_comes_back_after_an_error_too():
    fastseed.init(42)
    fastseed.reseed(1, 2)
    torch.rand(1)
    before = snapshot()
    with pytest.raises(KeyError), inside(2, 5):
        assert tuple(fastseed.derivation.context.seeder.scope) == (2, 5, 0)
        raise KeyError
    assert snapshot() == before
    with pytest.raises(ValueError, match="task must be in"), inside(-1):
        pass
    assert snapshot() == before and tuple(fastseed.derivation.context.seeder.scope) == (1, 2, 0)


def test_a_prepared_loader_is_told_the_epoch():
    accelerator = Accelerator(cpu=True)
    job = AcceleratedJob(accelerator, 42)
    sampler = ShuffleSampler(N, rank=0, world_size=1)
    prepared = accelerator.prepare(DataLoader(range(N), batch_size=BATCH, sampler=sampler))
    fastseed.register_generator(prepared)
    job.train(7)
    found = [int(i) for batch in prepared for i in batch]
    fastseed.reseed(1, 7)
    assert found == list(ShuffleSampler(N))
    rest = accelerator.skip_first_batches(prepared, 2)
    rest.set_epoch(7)  # Accelerate before 1.15 forgets it
    assert [int(i) for batch in rest for i in batch] == found[2 * BATCH :]


def test_what_is_saved_is_plain_data(tmp_path):
    run(tmp_path, save_at=5)
    held = torch.load(tmp_path / "custom_checkpoint_0.pkl", weights_only=True)
    assert (held["master_seed"], held["task"], held["epoch"]) == (42, 1, 1)
    assert torch.load(tmp_path / "custom_checkpoint_1.pkl", weights_only=True)["position"] == 3


def test_two_ranks(tmp_path):
    ranks = run_ranks("accelerate_ranks.py", 2, tmp_path)
    for rank in ranks:
        assert rank["first"] == rank["again"]
        assert "rng_types of the Accelerator must be None or ['generator']" in rank["error"]
    assert ranks[0]["first"][1] != ranks[1]["first"][1]
    held = {one[:2] for one in rng_states.inspect(tmp_path).states}
    assert {"rank 0", "rank 1"} == {owner for owner, _ in held} and len(held) == 12
    for both in zip(*(rank["orders"] for rank in ranks), strict=True):
        one, other, same = ([*chain(*parts)] for parts in zip(*both, strict=True))
        assert sorted(one) == sorted(other) == list(range(12))  # together, every sample once
        assert one == same != other
    fastseed.init(42)
    fastseed.reseed(1, 5)
    whole = list(ShuffleSampler(12))
    batches = [whole[i : i + 2] for i in range(0, 12, 2)]
    assert [rank["orders"][0][0] for rank in ranks] == [[*chain(*batches[r::2])] for r in (0, 1)]


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"master_seed": -1}, ValueError, "master_seed must be in"),
        ({"accelerator": None}, TypeError, r"accelerator must be an accelerate\.Accelerator"),
        ({"tasks": (0, 1)}, TypeError, r"tasks must be a fastseed\.integrations\.Tasks"),
    ],
)
def test_wrong_arguments(arguments, kind, text):
    with pytest.raises(kind, match=text):
        AcceleratedJob(**{"accelerator": Accelerator(cpu=True), **arguments})
    assert fastseed.derivation.context.seeder is None


def test_another_rank_than_that_of_init():
    accelerator = Accelerator(cpu=True)
    fastseed.init(42, rank=1, world_size=2)
    fastseed.register_generator(np.random.default_rng())
    with pytest.raises(RuntimeError, match="rank 1 of 2, but this is rank 0 of 1"):
        AcceleratedJob(accelerator)
    fastseed.init(42, rank=1, world_size=2)
    AcceleratedJob(accelerator)
    assert (fastseed.derivation.context.seeder.rank, fastseed.get_master_seed()) == (0, 42)
