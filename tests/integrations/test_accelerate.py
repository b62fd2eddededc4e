"""``attach``, against the real package: runs that resume, and the mistakes beside it."""

import itertools

import numpy as np
import pytest
import torch
from helpers.processes import run_ranks
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler

import fastseed
from fastseed.data import Loader, ShuffleSampler
from fastseed.integrations import run_in_task

accelerate = pytest.importorskip("accelerate")
from accelerate import Accelerator  # noqa: E402

from fastseed.integrations.accelerate import attach  # noqa: E402

N = 22


@pytest.fixture(autouse=True)
def one_accelerator_at_a_time():
    yield
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


# ---------------------------------------------------------------- every kind of loader, on ranks


@pytest.fixture(scope="module", params=["memory", "samplers", "workers"])
def runs(request, tmp_path_factory):
    """What each rank saw: on one rank, on two from the states of one too, on one from both."""
    names = {
        "memory": "plain,uneven,dispatched,drop_last,split,dispatched+split",
        "samplers": "seedable,stateful,ours,weighted,own,batches,lengths",
        "workers": "workers,persistent,dispatched+workers",
    }[request.param]
    folder = tmp_path_factory.mktemp("accelerate")
    return [run_ranks("accelerate_ranks.py", w, folder, names, timeout=400) for w in (1, 2, 1)]


def trained(ranks, name, kind=None, at=None):
    """Return the samples of each epoch, step after step, and rank after rank in it."""
    lists = [rank[name][kind][at] if kind else rank[name]["whole"] for rank in ranks]
    steps = [(*one[:2], rank, one[3]) for rank, (seen, _) in enumerate(lists) for one in seen
             if one[2] == "trained"]  # fmt: skip
    found = {0: [], 1: []}
    for epoch, *_, rows in sorted(steps):
        found[epoch] += [int(row[0]) for row in rows]
    return found


def test_a_run_that_resumes_on_as_many_ranks_is_the_same_run(runs):
    for ranks in runs[:2]:
        for rank in ranks:
            for name, found in rank.items():
                seen, digest = found["whole"]
                assert len(found["same"]) >= (6 if name in ("plain", "dispatched") else 1)
                for at, (rest, same) in found["same"].items():
                    since = [*map(int, at.split("-"))]
                    assert rest == [one for one in seen if one[:2] > since], (name, at)
                    # without DDP, rank 1 loads the model of rank 0
                    assert same == digest or (
                        rank is not ranks[0] and name in ("uneven", "lengths")
                    )


def test_other_ranks_continue_the_order(runs):
    one, two, again = runs
    for name in one[0]:
        whole = trained(one, name)
        for ranks, kind in ((two, "moved"), (again, "moved")):
            assert ranks[0][name][kind]
            for at in ranks[0][name][kind]:
                epoch, step = map(int, at.split("-"))
                rest = trained(ranks, name, kind=kind, at=at)
                before = trained(one if ranks is two else two, name)[epoch]
                seen = [
                    x[3] for rank in (one if ranks is two else two)
                    for x in rank[name]["whole"][0]
                    if x[2] == "trained" and (x[0], x[1]) in ((epoch, s) for s in range(step + 1))
                ]  # fmt: skip
                done = min(N, sum(map(len, seen)))
                order = whole[epoch][done:] if name != "lengths" else before[done:]
                got = rest[epoch][: len(order)] if name != "drop_last" else rest[epoch]
                assert got == order[: len(got)], (name, at)
                assert name == "drop_last" or len(got) == len(order)
                if epoch == 0:
                    assert rest[1] == trained(two if ranks is two else one, name)[1]


def test_ranks_share_out_each_epoch(runs):
    for ranks in runs[:2]:
        for name in ranks[0]:
            for epoch, samples in trained(ranks, name).items():
                if name not in ("weighted", "drop_last", "lengths"):
                    assert {*samples} == {*range(N)}, (name, epoch)
            rows = [row for rank in ranks for one in rank[name]["whole"][0] if one[2] == "trained"
                    for row in one[3]]  # fmt: skip
            assert {(row[1]) for row in rows} == {0.0, 1.0}  # the dataset was told its epoch
            noises = [one[4] for rank in ranks for one in rank[name]["whole"][0]]
            assert len({*noises}) == len(noises)  # no step, rank or evaluation repeats another


# ---------------------------------------------------------------- one process


class Points(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return int(i), torch.rand(3)


def prepared(accelerator=None, **loading):
    accelerator = Accelerator(cpu=True) if accelerator is None else accelerator
    job = attach(accelerator, 42)
    loading = loading or {"shuffle": True}
    return accelerator, job, accelerator.prepare(DataLoader(Points(), 3, **loading))


def look(batches, steps=None):
    return [(x[0].tolist(), float(torch.rand(()))) for x in itertools.islice(batches, steps)]


def restart():
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()
    fastseed.derivation.context.seeder = None


def test_the_order_is_that_of_a_shuffle_sampler():
    _, job, batches = prepared()
    orders = [[i for indices, _ in look(batches) for i in indices] for _ in range(2)]
    assert (job.epoch, job.step) == (2, 0) and repr(job) == "AttachedJob(epoch=2, step=0)"
    for epoch, order in enumerate(orders):
        fastseed.reseed(1, epoch)
        assert order == list(ShuffleSampler(12))


@pytest.mark.parametrize("make", [lambda: {"sampler": ShuffleSampler(12)}, None])
def test_loaders_of_fastseed_are_whole_orders(make):
    whole = look(prepared()[2])
    restart()
    accelerator = Accelerator(cpu=True)
    attach(accelerator, 42)
    loader = (
        Loader(Points(), 3, shuffle=True) if make is None else DataLoader(Points(), 3, **make())
    )
    assert look(accelerator.prepare(loader)) == whole


def test_a_run_that_resumes_at_an_epoch_s_end_has_no_step_of_it(tmp_path):
    accelerator, job, batches = prepared()
    look(batches, 4)
    accelerator.save_state(tmp_path / "inside")
    assert (job.epoch, job.step) == (0, 4)
    restart()
    accelerator, job, batches = prepared()
    whole = [look(batches), look(batches)]
    accelerator.save_state(tmp_path / "after")
    restart()
    accelerator, job, batches = prepared()
    accelerator.load_state(tmp_path / "inside")
    assert [job.epoch, look(batches), job.epoch, look(batches)] == [0, [], 1, whole[1]]
    accelerator.load_state(tmp_path / "after")
    assert (job.epoch, job.step) == (2, 0)


def test_evaluation_that_is_left_by_break_begins_anew(tmp_path):
    def run(resume):
        accelerator = Accelerator(cpu=True)
        job = attach(accelerator, 42)
        batches, held_out = accelerator.prepare(
            DataLoader(Points(), 3, shuffle=True), DataLoader(Points(), 3)
        )
        if resume:
            accelerator.load_state(tmp_path)
        seen = []
        for epoch in range(job.epoch, 2):
            for step, (indices, _) in enumerate(batches, job.step):
                seen.append((epoch, step, indices.tolist(), *look(held_out, 2)))
                if (epoch, step) == (0, 1) and not resume:
                    accelerator.save_state(tmp_path)
        return seen

    whole = run(False)
    restart()
    assert run(True) == whole[2:]
    assert whole[0][3][0] == whole[1][3][0] == [0, 1, 2] and whole[0][3][1] != whole[1][3][1]


def test_what_is_saved_is_plain_data(tmp_path):
    accelerator, _, batches = prepared()
    look(batches, 1)
    accelerator.save_state(tmp_path)
    held = torch.load(tmp_path / "custom_checkpoint_0.pkl", weights_only=True)
    (loader,) = held["loaders"]
    assert (held["master_seed"], loader["epoch"], loader["step"], loader["done"]) == (42, 0, 1, 3)


# ---------------------------------------------------------------- mistakes: loud, or harmless


def test_set_seed_after_it_changes_no_step():
    whole = look(prepared()[2])
    restart()
    _, _, batches = prepared()
    accelerate.utils.set_seed(1)
    assert look(batches) == whole


def test_without_load_state_a_run_begins_anew(tmp_path):
    accelerator, _, batches = prepared()
    whole = look(batches)
    accelerator.save_state(tmp_path)
    restart()
    assert look(prepared()[2]) == whole


def test_skip_first_batches_is_an_error(tmp_path):
    accelerator, _, batches = prepared()
    for skip in (accelerator.skip_first_batches, accelerate.skip_first_batches):
        with pytest.raises(RuntimeError, match="without skip_first_batches: load_state restores"):
            look(skip(batches, 2))


def test_the_order_follows_the_master_seed_not_a_generator(caplog):
    whole = look(prepared()[2])
    restart()
    sampler = RandomSampler(Points(), generator=torch.Generator().manual_seed(3))
    assert look(prepared(sampler=sampler)[2]) == whole
    assert "the order of RandomSampler follows the master seed" in caplog.text


@pytest.mark.parametrize("other", [0, 1])
def test_a_sampler_that_yields_another_order_is_an_error(tmp_path, other):
    accelerator, _, batches = prepared(sampler=[*range(12)])
    whole = look(batches, 2)
    accelerator.save_state(tmp_path)
    restart()
    accelerator, _, batches = prepared(sampler=[*range(other, 12), *range(other)])
    accelerator.load_state(tmp_path)
    if other:
        with pytest.raises(RuntimeError, match="must yield the same indices when it is run again"):
            look(batches)
    else:
        assert [whole, look(batches)] and len(whole) == 2


def spoil(worker):
    torch.manual_seed(0)


def test_a_worker_init_fn_is_harmless():
    loading = {"shuffle": True, "num_workers": 1, "worker_init_fn": spoil}
    whole = look(prepared(**loading)[2])
    restart()
    assert look(prepared(**loading)[2]) == whole


def test_a_loop_that_does_not_read_where_it_begins_warns(tmp_path, caplog):
    accelerator, _, batches = prepared()
    look(batches), look(batches, 1)
    accelerator.save_state(tmp_path)
    restart()
    accelerator, _, batches = prepared()
    accelerator.load_state(tmp_path)
    look(batches, 1)
    assert "continues in epoch 1, and nothing has read it: begin with range(job.e" in caplog.text


def test_another_epoch_than_that_of_the_state_is_an_error(tmp_path):
    accelerator, _, batches = prepared()
    look(batches), look(batches, 1)
    accelerator.save_state(tmp_path)
    accelerator.load_state(tmp_path)
    batches.set_epoch(0)
    with pytest.raises(RuntimeError, match=r"in epoch 1, which is not over, but set_epoch\(0\) wa"):
        look(batches)


def test_a_loop_after_a_break_is_another_epoch_and_warns(caplog):
    _, _, batches = prepared()
    first, second = look(batches, 2), look(batches)
    assert "left by break" in caplog.text and len(second) == 4
    restart()
    _, _, batches = prepared()
    assert look(batches)[:2] == first and look(batches) == second


def test_a_training_loader_inside_another_loop_warns(caplog):
    accelerator = Accelerator(cpu=True)
    attach(accelerator, 42)
    held_out, batches = accelerator.prepare(DataLoader(Points(), 3), DataLoader(Points(), 3))
    for _ in batches:
        look(held_out, 1)
    assert "prepare the loader of the outer loop first" in caplog.text


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(8))


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: DataLoader(Stream()), TypeError, "loader must be one of a map-style dataset"),
        (lambda: DataLoader(Points(), None), TypeError, "map-style dataset, in batches"),
        (
            lambda: DataLoader(Points(), sampler=DistributedSampler(Points(), 2, 0)),
            ValueError,
            "sampler must be one that Accelerate alone divides",
        ),
    ],
)
def test_prepare_refuses(make, kind, text):
    accelerator = Accelerator(cpu=True)
    attach(accelerator, 42)
    with pytest.raises(kind, match=text):
        accelerator.prepare(make())


def test_attach_is_called_once_before_prepare():
    accelerator, *_ = prepared()
    with pytest.raises(RuntimeError, match=r"call it once, before accelerator\.prepare"):
        attach(accelerator)
    with pytest.raises(TypeError, match=r"accelerator must be an accelerate\.Accelerator"):
        attach(None)
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(DataLoader(Points()))
    with pytest.raises(RuntimeError, match=r"call it once, before accelerator\.prepare"):
        attach(accelerator)


def test_loaders_of_fastseed_need_attach():
    with pytest.raises(TypeError, match=r"accelerator\.prepare must not be given a loader"):
        Accelerator(cpu=True).prepare(Loader(range(16), batch_size=2, shuffle=True))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 1}, r"state\['version'\] must be 2"),
        ({"master_seed": 43}, r"to resume, call fastseed\.init\(43\), got 43"),
        ({"loaders": []}, "those of the 1 loaders that are prepared: prepare all first"),
        ({"n": 13}, r"state\['n'\] must be 12, as of the loader that is prepared, got 13"),
        ({"order": "other"}, r"state\['order'\] must be 'batches of shuffle', as of the loader"),
        ({"done": "1"}, r"state\['done'\] must be"),
    ],
)
def test_a_damaged_state_changes_nothing(change, text):
    _, job, batches = prepared()
    look(batches, 1)
    state = job.state_dict()
    (name,) = change
    changed = {**state, **change}
    if name not in state:
        changed = {**state, "loaders": [{**state["loaders"][0], **change}]}
    with pytest.raises((TypeError, ValueError), match=text):
        job.load_state_dict(changed)
    assert job.state_dict() == state


@pytest.mark.filterwarnings("error")
def test_a_state_inside_an_accumulation_warns():
    accelerator, job, batches = prepared(Accelerator(cpu=True, gradient_accumulation_steps=2))
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    for step, _ in enumerate(batches):
        with accelerator.accumulate(model):
            if step % 2 == 0:
                with pytest.warns(UserWarning, match="inside an accumulation"):
                    job.state_dict()
            else:
                job.state_dict()


def test_ranks_that_would_share_their_generators_are_refused(monkeypatch):
    accelerator = Accelerator(cpu=True)
    accelerator.rng_types = ["torch"]
    monkeypatch.setattr(Accelerator, "num_processes", 2)
    with pytest.raises(ValueError, match=r"rng_types of the Accelerator must be None or \['gener"):
        attach(accelerator)


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
    with pytest.warns(UserWarning, match=r"attach\(accelerator\) of fastseed"):
        list(fastseed.data.steps(DataLoader(range(4)), epochs=1))


def test_another_rank_than_that_of_init():
    accelerator = Accelerator(cpu=True)
    fastseed.init(42, rank=1, world_size=2)
    fastseed.register_generator(np.random.default_rng())
    with pytest.raises(RuntimeError, match="rank 1 of 2, but this is rank 0 of 1"):
        attach(accelerator)


def test_a_task_of_one_s_own_leaves_training_alone():
    _, _, batches = prepared()
    whole = look(batches)
    restart()
    _, _, batches = prepared()
    seen = []
    for indices, _ in batches:
        with run_in_task(5):
            torch.rand(1)
        seen.append((indices.tolist(), float(torch.rand(()))))
    assert seen == whole
