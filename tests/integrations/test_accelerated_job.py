"""The job under Accelerate, against the real package: stopped and resumed runs, phases, orders."""

from __future__ import annotations

import random
from itertools import chain

import numpy as np
import pytest
import torch
from helpers.loaders import Continuing, digest, point
from helpers.processes import run_ranks
from helpers.support import snapshot
from torch.utils.data import BatchSampler, DataLoader, Dataset, WeightedRandomSampler

import fastseed
from fastseed.data import Loader, ShuffleSampler
from fastseed.integrations import run_in_task

accelerate = pytest.importorskip("accelerate")
from accelerate import Accelerator  # noqa: E402

from fastseed.integrations.accelerate import AcceleratedJob  # noqa: E402

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


def run(folder=None, save_at=None, resume=False, validate=True, own=None, batch=BATCH, **loading):
    """A script; what each step saw and drew, and the digest of its parameters."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=1)
    fastseed.derivation.context.seeder = None
    job = AcceleratedJob(accelerator, 42)
    if own is not None:
        fastseed.register_generator(own, name="own")
    model = torch.nn.Linear(3, 1)
    batches, held_out = DataLoader(Points(), batch, **(loading or {"shuffle": True})), Points()
    model, optimizer, batches, held_out = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.1), batches, DataLoader(held_out, 6)
    )
    if resume:
        accelerator.load_state(folder)
    seen, checked = [], []
    for epoch in range(job.epoch, EPOCHS):
        for step, (indices, points) in job.train(batches, epoch):
            kept = torch.nn.functional.dropout(points.float(), 0.5)
            drawn = None if own is None else own.random()
            seen.append((epoch, step, indices.tolist(), float(torch.rand(())), drawn))
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
    return seen, digest(model), checked


@pytest.mark.parametrize("step", [1, 6, 12])
def test_a_run_that_resumes_is_the_same_run(tmp_path, step):
    own = np.random.default_rng()
    seen, digest, _ = run(tmp_path, save_at=step, own=own)
    rest, same, _ = run(tmp_path, resume=True, own=np.random.default_rng())
    assert rest == seen[step:] and same == digest


def test_validation_leaves_training_alone():
    seen, digest, checked = run()
    assert run(validate=False)[:2] == (seen, digest)
    draws = [entry[3] for entry in seen]
    assert len({*draws}) == len(draws) and set(draws).isdisjoint(checked) and checked


def test_phases_have_tasks_of_their_own():
    accelerator = Accelerator(cpu=True)
    job = AcceleratedJob(accelerator, 42)
    assert tuple(fastseed.derivation.context.seeder.scope) == (0, 0, 0)
    batches = accelerator.prepare(DataLoader(range(4)))
    next(steps := job.train(batches, 3))
    next(steps)
    torch.rand(1)
    before, scopes, saved = snapshot(), [], job.state_dict()
    for phase in (job.validate(3), run_in_task(3), run_in_task(4, 1)):
        with phase:
            scopes.append(tuple(fastseed.derivation.context.seeder.scope))
            assert job.epoch == 3 and job.state_dict() == saved
            torch.rand(1)
        assert snapshot() == before
    assert scopes == [(2, 3, 0), (3, 0, 0), (4, 1, 0)]
    assert tuple(fastseed.derivation.context.seeder.scope) == (1, 3, 1)


# ---------------------------------------------------------------- the loop


def train(accelerator, loader, epochs=2, steps_of=None):
    """A loop with a schedule over ``len(loader)``; updates, rates and what was gathered."""
    job = AcceleratedJob(accelerator, 42)
    model = torch.nn.Linear(1, 1)
    optimizer, length = torch.optim.SGD(model.parameters(), 1.0), len(loader) * epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: max(0.0, 1 - i / length))
    model, optimizer, schedule, loader = accelerator.prepare(model, optimizer, schedule, loader)
    updates, rates, gathered = [], [], []
    for epoch in range(epochs):
        for _, points in enumerate(loader) if steps_of == "torch" else job.train(loader, epoch):
            rates.append(optimizer.param_groups[0]["lr"])
            gathered += accelerator.gather_for_metrics(points).flatten().tolist()
            with accelerator.accumulate(model):
                accelerator.backward(model(points).sum())
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                updates.append(accelerator.sync_gradients)
    return updates, rates, gathered


@pytest.mark.parametrize("n", [10, 8])
def test_train_accumulates_and_schedules_as_accelerate_does(n):
    loops = []
    for kind in ("torch", "fastseed"):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
        points = torch.arange(float(n))[:, None]
        loops.append(train(accelerator, DataLoader(points, 1, shuffle=True), steps_of=kind))
        accelerate.state.GradientState._reset_state()
        accelerate.state.AcceleratorState._reset_state(True)
    (updates, rates, _), (same, equal, gathered) = loops
    assert updates == same and sum(same) == 2 * -(-n // 4) and rates == equal
    assert sorted(gathered[:n]) == sorted(gathered[n:]) == list(range(n))
    assert gathered[:n] != gathered[n:]


class Global(Continuing):
    """One that draws from a global generator."""

    def __init__(self):
        self.n = N

    def __iter__(self):
        return iter(random.sample(range(N), N))


@pytest.mark.parametrize(
    "loading",
    [
        lambda: {"sampler": Continuing(N)},
        lambda: {"sampler": Global()},
        lambda: {"sampler": WeightedRandomSampler(torch.arange(1.0, N + 1), N)},
        lambda: {"sampler": ShuffleSampler(N)},
        lambda: {"shuffle": True, "num_workers": 1, "generator": torch.Generator()},
        lambda: {"shuffle": False},
    ],
)
def test_every_sampler_resumes(tmp_path, loading):
    seen, digest, _ = run(tmp_path, save_at=STEPS + 2, validate=False, **loading())
    rest, same, _ = run(tmp_path, resume=True, validate=False, **loading())
    if "num_workers" in loading():  # the workers draw the points; the order is the same
        rest, seen = [[one[:3] for one in steps] for steps in (rest, seen)]
    else:
        assert digest == same
    assert rest == seen[STEPS + 2 :]
    orders = [[*chain(*(one[2] for one in seen if one[0] == epoch))] for epoch in range(EPOCHS)]
    assert all(len(order) == N for order in orders)
    assert (orders[0] == orders[1]) == (loading() == {"shuffle": False})


def test_order_is_that_of_a_shuffle_sampler():
    seen = run(validate=False)[0]
    fastseed.init(42)
    fastseed.reseed(1, 1)
    assert [*chain(*(one[2] for one in seen if one[0] == 1))] == list(ShuffleSampler(N))


def test_another_batch_size_resumes_where_a_step_begins(tmp_path):
    seen = run(tmp_path, save_at=STEPS + 2, validate=False)[0]
    order = [*chain(*(one[2] for one in seen if one[0] == 1))]
    rest = run(tmp_path, resume=True, validate=False, batch=6, shuffle=True)[0]
    assert [one[2] for one in rest if one[0] == 1] == [order[6:]]
    with pytest.raises(RuntimeError, match="after 2 steps of 3 samples, where no step of 4"):
        run(tmp_path, resume=True, validate=False, batch=4, shuffle=True)


def test_a_step_may_be_the_last_that_a_loop_has(tmp_path):
    accelerator = Accelerator(cpu=True)
    job = AcceleratedJob(accelerator, 42)
    batches = accelerator.prepare(DataLoader(range(4)))
    for step, _ in job.train(batches, 0):
        if step == 1:
            break
    assert [step for step, _ in job.train(batches, 0)] == [2, 3]
    assert not accelerator.gradient_state.in_dataloader


# ---------------------------------------------------------------- refusals


def test_prepare_refuses_loaders_of_fastseed():
    with pytest.raises(TypeError, match=r"accelerator\.prepare must not be given a loader"):
        Accelerator(cpu=True).prepare(Loader(range(16), batch_size=2, shuffle=True))


def skipped(prepare):
    return accelerate.skip_first_batches(prepare(DataLoader(range(4))), 1)


def unbatched(prepare):
    return prepare(DataLoader(range(4), batch_size=None))


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(8))


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda prepare: 3, TypeError, "loader must be what accelerator.prepare returned"),
        (lambda prepare: DataLoader(range(4)), TypeError, "what accelerator.prepare returned"),
        (lambda prepare: prepare(DataLoader(Stream())), TypeError, "accelerator.prepare returned"),
        (skipped, ValueError, "loader must be the one from before skip_first_batches"),
        (unbatched, ValueError, "loader must be of a map-style dataset, in batches"),
    ],
)
def test_train_refuses_other_loaders(make, kind, text):
    accelerator = Accelerator(cpu=True)
    job = AcceleratedJob(accelerator, 42)
    made = make(accelerator.prepare)
    with pytest.raises(kind, match=text):
        job.train(made, 0)


class TooLong(BatchSampler):
    def __len__(self):
        return super().__len__() + 1


def test_a_wrong_length_is_an_error():
    accelerator = Accelerator(cpu=True)
    job = AcceleratedJob(accelerator, 42)
    batches = TooLong(range(4), 2, False)
    batches = accelerator.prepare(DataLoader(range(4), batch_sampler=batches))
    with pytest.raises(RuntimeError, match="number of its batches, which is 2, got 3"):
        list(job.train(batches, 0))


@pytest.mark.filterwarnings("error")
def test_a_state_inside_an_accumulation_warns(tmp_path):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    job = AcceleratedJob(accelerator, 42)
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    batches = accelerator.prepare(DataLoader(range(4)))
    for step, _ in job.train(batches, 0):
        with accelerator.accumulate(model):
            if step == 0:
                with pytest.warns(UserWarning, match="inside an accumulation"):
                    job.state_dict()
            else:
                job.state_dict()


@pytest.mark.filterwarnings("error")
def test_a_loader_that_accelerate_does_not_know_warns():
    fastseed.init(42)
    fastseed.reseed(1)
    batches = Loader(range(4))
    list(batches)
    accelerator = Accelerator(cpu=True)
    list(batches)
    accelerator.gradient_accumulation_steps = 2
    with pytest.warns(UserWarning, match="Accelerate does not know this loader"):
        list(batches)
    with pytest.warns(UserWarning, match="iterate its result with AcceleratedJob.train"):
        list(fastseed.data.steps(DataLoader(range(4)), epochs=1))


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"version": 2}, ValueError, r"state\['version'\] must be 1"),
        ({"master_seed": 43}, ValueError, r"to resume, call fastseed\.init\(43\), got 43"),
    ],
)
def test_a_damaged_state_changes_nothing(change, kind, text):
    job = AcceleratedJob(Accelerator(cpu=True), 42)
    state = job.state_dict()
    with pytest.raises(kind, match=text):
        job.load_state_dict({**state, **change})
    assert job.state_dict() == state


def test_what_is_saved_is_plain_data(tmp_path):
    run(tmp_path, save_at=5)
    held = torch.load(tmp_path / "custom_checkpoint_0.pkl", weights_only=True)
    assert (held["master_seed"], held["epoch"], point(held["steps"])) == (42, 1, (1, 1))


# ---------------------------------------------------------------- ranks


def test_two_ranks(tmp_path):
    ranks = run_ranks("accelerate_ranks.py", 2, tmp_path)
    for rank in ranks:
        assert rank["whole"][rank["saved"] :] == rank["rest"] and len({*rank["digests"]}) == 1
        assert "rng_types of the Accelerator must be None or ['generator']" in rank["error"]
        assert rank["updates"] == 2 * 2  # of 6 batches by 4, in 2 epochs
        assert rank["rates"][-1] > 0 and rank["rates"] == rank["theirs"]
        for kind in ("resumable", "loader"):
            assert "accelerator.prepare must not be given a loader" in rank["refused"][kind]
        for kind in ("sampler", "seedable"):
            assert "must be 0 and world_size 1 in a loader that Accelerate" in rank["refused"][kind]
        for epoch in rank["gathered"]:
            assert sorted(epoch) == list(range(22))
    one, other = (rank["whole"] for rank in ranks)
    assert [x[-1] for x in one] != [x[-1] for x in other]
    assert not {x[-1] for x in one} & {x[-1] for x in other}  # random numbers
    seen = [*chain(*(x[2] for x in (*one, *other) if x[0] == 0))]
    assert set(seen) == set(range(22)) and len(seen) == 24


def test_wrong_arguments():
    with pytest.raises(TypeError, match=r"accelerator must be an accelerate\.Accelerator"):
        AcceleratedJob(None)
    with pytest.raises(ValueError, match="master_seed must be in"):
        AcceleratedJob(Accelerator(cpu=True), -1)
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
