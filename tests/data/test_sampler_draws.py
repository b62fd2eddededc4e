"""Orders that samplers draw: the same in every run, on any workers, after any stop."""

import itertools
import random

import numpy as np
import pytest
import torch
from helpers.inside import warn_once
from helpers.loaders import Balanced, Indexed, Plain, flat, position_of, same, start
from helpers.support import snapshot
from torch.utils.data import (
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

import fastseed
from fastseed.data import Loader, ShuffleSampler, count_occurrences

N = 24


class Batches(Sampler):
    """The same in batches, of any kind."""

    def __init__(self, kind=list):
        self.kind = kind

    def __len__(self):
        return N // 4

    def __iter__(self):
        order = np.random.permutation(N).tolist()
        for at in range(0, N, 4):
            yield self.kind(order[at : at + 4])


MAKERS = {
    "random": lambda: RandomSampler(range(N)),
    "replacement": lambda: RandomSampler(range(N), replacement=True, num_samples=70),
    "weighted": lambda: WeightedRandomSampler(torch.arange(1.0, N + 1), N),
    "subset": lambda: SubsetRandomSampler(range(N)),
    "counted": lambda: count_occurrences(WeightedRandomSampler(torch.ones(N), N)),
    "user's": lambda: Balanced(N),
}
POOLS = [(0, False), (1, False), (2, True)]


def make(kind, sampler, workers=0, persistent=False, batch=4):
    return kind(
        Plain(N),
        batch_size=batch,
        sampler=sampler,
        num_workers=workers,
        persistent_workers=persistent,
        collate_fn=same,
    )


@pytest.mark.parametrize("name", MAKERS)
def test_an_order_knows_nothing_of_workers_and_epochs_before(name):
    start(5)
    expected = flat(make(Loader, MAKERS[name]()))
    fastseed.reseed(1, 6)
    assert flat(make(Loader, MAKERS[name]())) != expected
    for workers, persistent in POOLS:
        fastseed.reseed(1, 4)
        batches = make(Loader, MAKERS[name](), workers, persistent)
        for epoch in (4, 5, 5):
            fastseed.reseed(1, epoch)
            order = flat(batches)
        assert order == expected, (workers, persistent)


@pytest.mark.parametrize("name", MAKERS)
def test_ranks_draw_apart_and_the_main_process_draws_nothing(name):
    orders = []
    for rank in range(2):
        start(5, rank=rank, world_size=2)
        before = snapshot()
        orders.append(flat(make(Loader, MAKERS[name]())))
        assert snapshot() == before
    assert orders[0] != orders[1]


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, np.array])
def test_batches_of_any_kind_are_counted(kind):
    start(3)
    expected = flat(Loader(Plain(N), batch_sampler=Batches(), collate_fn=same))
    batches = Loader(Plain(N), batch_sampler=Batches(kind), collate_fn=same)
    done = flat(itertools.islice(batches, 2))
    assert position_of(batches.state_dict()) == 2
    again = Loader(Plain(N), batch_sampler=Batches(kind), collate_fn=same)
    again.load_state_dict(batches.state_dict())
    assert done + flat(again) == expected


class Seeds(Indexed):
    """The seeds that the worker_init_fn of users take."""

    def __getitem__(self, i):
        return get_worker_info().seed


def test_torchs_seed_of_a_worker_comes_again_only_with_its_iteration():
    seen = []
    for epoch, rank in ((0, 0), (0, 1), (1, 0)):
        start(epoch, rank=rank, world_size=2)
        batches = Loader(Seeds(N), shuffle=True, num_workers=2, collate_fn=same)
        for _ in range(2):
            iterator = iter(batches)
            first, state = (next(iterator), next(iterator)), batches.state_dict()
            seen.append(tuple(flat(first)))
            batches.load_state_dict(state)
            seen.append(tuple(flat(itertools.islice(batches, 2))))
    assert seen[0::4] == seen[2::4] and seen[1::4] == seen[3::4], "reproducible"
    assert len({seed for seeds in seen for seed in seeds}) == 3 * 2 * 2


class Remembering(Sampler):
    """It keeps everything from run to run that a sampler may keep."""

    def __init__(self, seeds=False):
        self.passes, self.order, self.cache, self.seeds = 0, [*range(N)], None, seeds
        self.rng, self.torch = random.Random(7), torch.Generator().manual_seed(7)
        self.numpy, self.array, self.tensor = (
            np.random.default_rng(7),
            np.arange(N),
            torch.arange(N),
        )

    def set_epoch(self, epoch):
        if self.seeds:
            self.__init__(seeds=True)

    def __iter__(self):
        self.passes += 1
        self.cache = self.cache or [1]
        for held in (self.order, self.array):
            self.rng.shuffle(held)
        self.tensor += int(torch.randint(9, (), generator=self.torch)) + self.numpy.integers(1, 9)
        return iter(self.order)


@pytest.mark.parametrize(
    ("make_sampler", "names"),
    [
        (Remembering, "array numpy order passes rng tensor torch"),
        (lambda: Remembering(seeds=True), ""),
        (lambda: Balanced(N), ""),
        (lambda: count_occurrences(Remembering()), "array numpy order passes rng tensor torch"),
        (lambda: ShuffleSampler(N), ""),
    ],
)
def test_what_a_sampler_keeps_for_its_next_run_is_named(make_sampler, names, caplog):
    warn_once.cache_clear()
    start()
    batches = make(Loader, make_sampler())
    for epoch in range(3):
        assert "is kept for its next run" not in caplog.text or epoch == 2
        fastseed.reseed(1, epoch)
        list(batches)
    said = [r.message.split(" changed while")[0] for r in caplog.records if "is kept" in r.message]
    named = ", ".join(f"Remembering.{name}" for name in names.split())
    assert said == ([f"fastseed.data.Loader: {named}"] if names else [])


SAMPLERS = {
    "ours": lambda: ShuffleSampler(N),
    "torch's": lambda: DistributedSampler(range(N), 1, 0),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_two_loaders_with_one_sampler_follow_the_epoch(name):
    start()
    expected = []
    for epoch in range(5):
        fastseed.reseed(1, epoch)
        expected.append(flat(make(Loader, SAMPLERS[name]())))
    sampler = SAMPLERS[name]()
    pair = [make(Loader, sampler), make(Loader, count_occurrences(sampler))]
    for epoch in range(5):
        fastseed.reseed(1, epoch)
        for batches in pair[:: (-1) ** epoch]:
            assert flat(batches) == expected[epoch]
