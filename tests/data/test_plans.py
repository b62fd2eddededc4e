"""What an iteration keeps: the epoch of a dataset, the place of a sampler, size and seed."""

import pickle

import numpy as np
import pytest
import torch
from helpers.inside import context, warn_once
from helpers.loaders import Given, Stateful, same
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, get_worker_info

import fastseed
from fastseed.data import ShuffleSampler, per_sample, steps

N = 20


class Items(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        return int(i)


def shuffled():
    fastseed.init(42, rank=0, world_size=1)
    return steps(DataLoader(Items(), 6, shuffle=True, collate_fn=same), 2)


class EpochNumbers(Dataset):
    """Sample i is (epoch, i, what its worker drew), where somebody says the epoch."""

    epoch = -1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return self.epoch, i, int(np.random.randint(2**62))


class Streamed(EpochNumbers, IterableDataset):
    def __iter__(self):
        return (self[i] for i in range(8))


def seeds_numpy(worker):
    np.random.seed(get_worker_info().seed % 2**32)


@pytest.mark.parametrize("workers", [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("kind", [EpochNumbers, Streamed, lambda: per_sample(EpochNumbers())])
def test_the_epoch_reaches_the_dataset_and_workers_keep_no_seed_of_an_epoch(kind, workers):
    def epochs(first):
        fastseed.init(42, rank=0, world_size=1)
        count, persistent = workers
        more = {"num_workers": count, "persistent_workers": persistent}
        init = {"worker_init_fn": seeds_numpy} if count else {}
        loop = steps(DataLoader(kind(), 4, collate_fn=same, **more, **init))
        return {e: [s for _, _, batch in loop.in_epoch(e) for s in batch] for e in range(first, 3)}

    whole = epochs(0)
    assert all(sample[0] == epoch for epoch, samples in whole.items() for sample in samples)
    assert epochs(1) == {1: whole[1], 2: whole[2]}


def keyed():
    with fastseed.random.keyed("order"):
        return torch.randperm(N).tolist()


def forked():
    with fastseed.fork_rng("order", index=0):
        return torch.randperm(N).tolist()


def derived():
    generator = torch.Generator().manual_seed(fastseed.derive_seed("order"))
    return torch.randperm(N, generator=generator).tolist()


def lazily():
    for i in range(N):
        with fastseed.random.keyed("pick", index=i):
            pick = int(torch.randint(N, ()))
        yield pick


class Registered(Given):
    def __init__(self):
        self.generator = torch.Generator()
        super().__init__(lambda: torch.randperm(N, generator=self.generator).tolist())
        fastseed.register_generator(self.generator, name="order")


PLACED = {
    "keyed": lambda: Given(keyed),
    "fork_rng": lambda: Given(forked),
    "derive_seed": lambda: Given(derived),
    "lazily": lambda: Given(lazily),
    "registered": Registered,
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", PLACED)
def test_a_sampler_runs_in_its_own_place(kind, workers):
    """Whatever step resumes it, and whatever the loop draws in blocks and registered generators."""

    def loop():
        fastseed.init(42, rank=0, world_size=1)
        sampler = PLACED[kind]()
        more = {"collate_fn": same, "num_workers": workers}
        return sampler, steps(DataLoader(Items(), 6, sampler=sampler, **more), 2)

    def train(sampler, loop):
        seen = []
        for epoch, step, batch in loop:
            with fastseed.random.keyed("order"):  # the sampler's names are its own
                drawn = float(torch.rand(()))
            if kind == "registered":
                drawn += float(torch.rand((), generator=sampler.generator))
            assert context.seeder.scope == (1, epoch, step)
            seen.append((epoch, step, batch, drawn, pickle.dumps(loop.state_dict())))
        return seen

    whole = train(*loop())
    assert kind == "lazily" or sorted(i for _, _, batch, *_ in whole[:4] for i in batch) == [
        *range(N)
    ]
    for done in (2, 4, 5):
        sampler, resumed = loop()
        resumed.load_state_dict(pickle.loads(whole[done - 1][4]))
        assert train(sampler, resumed) == whole[done:]


def test_open_blocks_outlive_a_samplers_place():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 3)
    with fastseed.random.keyed("outer"):
        expected = torch.rand(2).tolist()
    fastseed.reseed(1, 3)
    validation = fastseed.data.Loader(Items(), 6, sampler=Given(keyed), collate_fn=same)
    with fastseed.random.keyed("outer"):
        first = len(list(validation))
        assert (first, torch.rand(2).tolist(), len(list(validation))) == (4, expected, 4)


class Remembering(Given):
    """Its generator goes on from epoch to epoch."""

    def __init__(self, kind):
        rng = np.random.default_rng(7) if kind == "numpy" else torch.Generator().manual_seed(7)
        self.rng, self.passes = rng, 0
        super().__init__(getattr(self, kind))

    def numpy(self):
        return self.rng.permutation(N).tolist()

    def torch(self):
        return torch.randperm(N, generator=self.rng).tolist()

    def turned(self):
        self.passes += 1
        return [(i + self.passes) % N for i in range(N)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["numpy", "torch", "turned"])
def test_a_sampler_that_remembers_raises_where_it_yields_others(kind, workers):
    def loop(batch):
        fastseed.init(42, rank=0, world_size=1)
        more = {"collate_fn": same, "num_workers": workers}
        return steps(DataLoader(Items(), batch, sampler=Remembering(kind), **more), 2)

    states = {}
    first = loop(5)
    for epoch, step, _ in first:
        states[epoch, step] = first.state_dict()
    inside, resumed = loop(4), loop(4)
    inside.load_state_dict(states[0, 1])  # it has made no pass yet: as the whole run
    assert sum(len(batch) for *_, batch in inside.in_epoch(0)) == N - 10
    resumed.load_state_dict(states[1, 1])
    with pytest.raises(RuntimeError, match="sampler must yield the same indices when it is run"):
        next(iter(resumed))
    left = loop(5)
    for epoch, step, _ in left:
        if (epoch, step) == (0, 1):
            break
    with pytest.raises(RuntimeError, match="sampler must yield the same indices when it is run"):
        next(iter(left))


def test_an_iteration_keeps_the_size_that_it_began_with():
    fastseed.init(42, rank=0, world_size=1)
    batches = BatchSampler(ShuffleSampler(N), 4, False)
    loop, sizes = steps(DataLoader(Items(), batch_sampler=batches, collate_fn=same), 2), []
    for epoch, step, batch in loop:
        sizes.append(len(batch))
        batches.batch_size = 10
        if (epoch, step) == (0, 1):
            state = loop.state_dict()
    assert sizes == [4] * 5 + [10] * 2
    resumed = steps(DataLoader(Items(), batch_sampler=batches, collate_fn=same), 1)
    resumed.load_state_dict(state)
    assert [len(batch) for *_, batch in resumed] == [10, 2]


def test_another_master_seed_inside_an_epoch_is_that_of_the_next():
    def orders(*seeds):
        loop = shuffled()
        seen = []
        for epoch, step, batch in loop:
            seen.append(batch)
            if (epoch, step) == (0, 1) and seeds:
                fastseed.init(*seeds, rank=0, world_size=1)
                for refused in (loop.state_dict, loop.lineage, lambda: loop.skip(1, 0, 0)):
                    with pytest.raises(RuntimeError, match=r"began under master seed 42, but .* 7"):
                        refused()
        return seen

    whole, changed = orders(), orders(7)
    assert changed[:4] == whole[:4] and changed[4:] != whole[4:]
    assert sorted(i for batch in changed[4:] for i in batch) == [*range(N)]


def test_a_quarantine_does_not_reach_the_users_sampler():
    fastseed.init(42, rank=0, world_size=1)
    sampler = ShuffleSampler(N)
    loop = steps(DataLoader(Items(), 4, sampler=sampler, collate_fn=same), 1)
    for _, step, _ in loop:
        if step == 0:
            loop.quarantine([3])
    fastseed.reseed(1, 0)
    assert sorted(sampler) == [*range(N)]


def with_last(items):
    """Is this the last one? As in many training loops."""
    items = iter(items)
    before = next(items)
    for item in items:
        yield before
        before = item
    yield before


def test_a_step_before_the_steps_were_cut_in_another_way():
    def loop():
        fastseed.init(42, rank=0, world_size=1)
        batches = BatchSampler(ShuffleSampler(N), 5, False)
        return batches, steps(DataLoader(Items(), batch_sampler=batches, collate_fn=same), 2)

    batches, first = loop()
    for epoch, step, _ in with_last(first):
        batches.batch_size = 4
        if (epoch, step) == (0, 3):
            assert (first.epoch, first.step) == (1, 1)
            state = first.state_dict(after=(0, 3))
    batches, resumed = loop()
    batches.batch_size = 4
    resumed.load_state_dict(state)
    assert [(epoch, len(batch)) for epoch, _, batch in resumed] == [(1, 4)] * 5


def test_steps_after_which_there_is_no_state():
    loop = shuffled()
    taken = loop.in_epoch(0)
    next(taken), next(taken)
    for after in ((0, 2), (1, 0), (0, -1), [0, 0], (0, "0")):
        with pytest.raises((TypeError, ValueError), match=r"steps\.state_dict: after"):
            loop.state_dict(after=after)
    state = loop.state_dict(after=(0, 0))
    loop.quarantine([3])
    with pytest.raises(ValueError, match=r"this loop gave since skip\(\), quarantine"):
        loop.state_dict(after=(0, 0))
    resumed = shuffled()
    resumed.load_state_dict(state)
    with pytest.raises(ValueError, match="that this loop gave"):
        resumed.state_dict(after=(0, 0))
    stateful = steps(DataLoader(Stateful(N), 5), 2)
    next(iter(stateful))
    with pytest.raises(ValueError, match="None with a dataset's state"):
        stateful.state_dict(after=(0, 0))


def test_what_cannot_be_resumed_warns_at_its_first_batch(caplog):
    warn_once.cache_clear()
    fastseed.init(42, rank=0, world_size=1)
    loop = steps(DataLoader(Items(), 4, in_order=False), 1)
    assert caplog.text == "" and len(list(loop)) == 5
    assert "in_order must be True" in caplog.text and "state_dict() will raise" in caplog.text


def test_a_dataset_that_grows_needs_a_new_loop_if_its_order_is_ours():
    fastseed.init(42, rank=0, world_size=1)
    for shuffle in (False, True):
        data = list(range(10))
        loop = steps(DataLoader(data, 5, shuffle=shuffle), task=1 + shuffle)
        assert len(list(loop.in_epoch(0))) == 2
        data += [0] * 5
        if not shuffle:
            assert len(list(loop.in_epoch(1))) == 3
            continue
        with pytest.raises(RuntimeError, match="must keep its length 10, of which the order is"):
            next(loop.in_epoch(1))
        assert len(list(steps(DataLoader(data, 5, shuffle=True), task=2).in_epoch(1))) == 3


def test_a_dataset_may_grow_inside_an_epoch():
    fastseed.init(42, rank=0, world_size=1)
    data = list(range(10))
    loop = steps(DataLoader(data, 5, shuffle=True))
    next(loop.in_epoch(0))
    data += [0] * 5
    assert len(list(loop.in_epoch(0))) == 1


def test_a_loop_begins_where_its_sampler_was_sought():
    fastseed.init(42, rank=0, world_size=1)
    sampler = ShuffleSampler(N)
    sampler.seek(8)
    loop = steps(DataLoader(Items(), 4, sampler=sampler, collate_fn=same), 2)
    batches = [batch for *_, batch in loop]
    assert len(batches) == 3 + 5
    assert batches[:3] == [loop.lineage().at(0, step).sample.tolist() for step in range(3)]
