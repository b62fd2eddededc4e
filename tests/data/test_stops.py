"""Stop after any batch, of any kind of loader, and continue: the same batches follow."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from helpers.loaders import Indexed, Plain, dealt, draw, flat, on_ranks, same, start
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import fastseed
from fastseed.data import Loader, Seekable, ShuffleSampler, count_occurrences, per_sample


class Untouched(Plain):
    """Counts what is read."""

    read = 0

    def __getitem__(self, i):
        self.read += 1
        return int(i)


class Halves:
    """A sampler of batches that takes turns in batches of 3 and of 5, of a sampler's indices."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        indices, size = list(self.sampler), 3
        while indices:
            yield indices[:size]
            indices, size = indices[size:], 8 - size

    def __len__(self):
        return -(-len(list(self.sampler)) // 4)


KINDS = {
    "in order": lambda: {"batch_size": 4},
    "random": lambda: {"batch_size": 4, "sampler": RandomSampler(range(30))},
    "subset": lambda: {"batch_size": 4, "sampler": SubsetRandomSampler(range(0, 30, 2))},
    "weighted": lambda: {"batch_size": 4, "sampler": WeightedRandomSampler([1.0] * 30, 30)},
    "dropping": lambda: {"batch_size": 4, "sampler": RandomSampler(range(30)), "drop_last": True},
    "no batches": lambda: {"batch_size": None, "sampler": RandomSampler(range(30))},
    "batches of its own": lambda: {"batch_sampler": Halves(RandomSampler(range(30)))},
    "batches around ours": lambda: {"batch_sampler": Halves(ShuffleSampler(30))},
    "batches of torch": lambda: {"batch_sampler": BatchSampler(ShuffleSampler(30), 4, False)},
    "lists": lambda: {
        "batch_size": None, "sampler": BatchSampler(ShuffleSampler(30), 4, False),
    },
    "counted": lambda: {
        "batch_size": 4,
        "sampler": count_occurrences(WeightedRandomSampler([1.0] * 30, 30)),
    },
    "counted, ours": lambda: {"batch_size": 4, "sampler": count_occurrences(ShuffleSampler(30))},
    "a user's": lambda: {"batch_size": 4, "sampler": Balanced()},
    "lists of lists": lambda: {"batch_sampler": [[0, 1, 2], [3], [4, 5], [1, 2, 3, 4], [29]]},
    "samples": lambda: {"dataset": per_sample(Indexed(30)), "batch_size": 4, "shuffle": True},
    "one sample": lambda: {"dataset": per_sample(Indexed(30)), "shuffle": True},
    "seekable": lambda: {"dataset": Seekable(lambda p: range(p, 30)), "batch_size": 4},
    "seekable, length unknown": lambda: {"dataset": Seekable(numbers), "batch_size": 4},
    "seekable, no batches": lambda: {"dataset": Seekable(numbers), "batch_size": None},
}  # fmt: skip


def numbers(position):
    return iter(range(position, 30))


def occurrences(batch):
    return [(int(i), getattr(i, "occurrence", 0)) for i in batch]


class Balanced(Sampler):
    """A sampler as users write it: the order is drawn from the global generators, bit by bit."""

    def __len__(self):
        return 30

    def __iter__(self):
        left = list(np.random.permutation(30))
        while left:
            yield left.pop(random.randrange(len(left)) ^ int(torch.randint(1, ())))


class Lists(Untouched):
    """An index: a number, or a list of them; with the number of its occurrence."""

    def __getitem__(self, i):
        self.read += 1
        return occurrences(i if isinstance(i, list) else [i])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 1])
def test_every_stop(kind, workers):
    def make(workers=workers):
        settings = {"dataset": Lists(30), **KINDS[kind]()}
        batches = Loader(**settings, num_workers=workers, collate_fn=same)
        return settings["dataset"], batches

    def train(batches):
        """Return each batch, what the main process draws after it, and the state."""
        return [(batch, draw(), batches.state_dict()) for batch in batches]

    start(2)
    _, batches = make(0)
    before, first = fastseed.state_dict(rng=True), batches.state_dict()
    whole = train(batches)
    states = [first, *(state for *_, state in whole)]
    assert len(whole) >= 4
    _, batches = make()
    fastseed.load_state_dict(before)
    assert train(batches) == whole, "workers change nothing"
    for stop in range(len(states)) if not workers else (2, len(states) - 1):
        dataset, batches = make()
        batches.load_state_dict(states[stop])
        assert [batch for batch, *_ in train(batches)] == [batch for batch, *_ in whole[stop:]]
        if not workers and isinstance(dataset, Lists):
            counts_one = kind in ("no batches", "lists")
            read = sum(1 if counts_one or not batch else len(batch) for batch, *_ in whole[stop:])
            assert dataset.read == read, "what was seen is not read again"


@pytest.mark.parametrize("kind", ["in order", "random", "counted"])
def test_another_batch_size(kind):
    start(2)
    whole = flat(Loader(Lists(30), collate_fn=same, **KINDS[kind]()))
    batches = Loader(Lists(30), collate_fn=same, **KINDS[kind]())
    iterator = iter(batches)
    next(iterator), next(iterator)
    other = Loader(Lists(30), collate_fn=same, **{**KINDS[kind](), "batch_size": 7})
    other.load_state_dict(batches.state_dict())
    sizes = [len(batch) for batch in other]
    assert sizes == [7, 7, 7, 1]
    other.load_state_dict(batches.state_dict())
    assert flat(other) == whole[8:]


def test_batches_of_any_size_are_counted_so_ranks_may_have_other_sizes():
    start(2)
    batches = Loader(Plain(30), batch_sampler=Halves(RandomSampler(range(30))), collate_fn=same)
    whole = list(batches)
    iterator = iter(batches)
    next(iterator), next(iterator)
    other = Loader(Plain(30), batch_sampler=Halves(RandomSampler(range(30))), collate_fn=same)
    other.load_state_dict(batches.state_dict())
    assert list(other) == whole[2:]
    state = batches.state_dict()
    start(2, world_size=2)
    other.load_state_dict(state)
    with pytest.raises(RuntimeError, match="there must be 1 ranks, as when the state was saved"):
        iter(other)


def distributed(world, batch, state=None, stop=None):
    def make(rank):
        sampler = DistributedSampler(range(48), num_replicas=world, rank=rank)
        return Loader(Plain(48), batch, sampler=sampler, collate_fn=same)

    shares, saved = on_ranks(make, world, state=state, stop=stop)
    return dealt(shares), saved


def test_distributed_sampler_goes_on_where_its_ranks_can():
    whole, _ = distributed(1, 1)
    before, state = distributed(2, 3, stop=2)
    assert state["position"] == 12 and before == whole[:12]
    for world, batch in ((1, 5), (2, 4), (3, 1), (4, 3)):
        assert distributed(world, batch, state)[0] == whole[12:]
    with pytest.raises(RuntimeError, match=r"must be a multiple of the 5 ranks, got 12"):
        distributed(5, 1, state)


def test_every_rank_that_reads_everything_counts_for_itself():
    for rank, world in ((0, 2), (1, 2), (0, 3)):
        start(rank=rank, world_size=world)
        batches = Loader(Plain(9), 2, sampler=SequentialSampler(range(9)), collate_fn=same)
        next(iter(batches))
        assert batches.state_dict()["position"] == 2 * world
        batches.load_state_dict(batches.state_dict())
        assert flat(batches) == list(range(2, 9))


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_after_a_resumed_one_are_whole(workers):
    def make():
        kept = {"num_workers": workers, "persistent_workers": workers > 0}
        return Loader(per_sample(Indexed(24)), 4, True, collate_fn=same, **kept)

    start(3)
    whole, state = make(), make().state_dict()
    expected = {}
    for epoch in (3, 4, 5):
        fastseed.reseed(1, epoch)
        expected[epoch] = list(whole)
    batches = make()
    batches.load_state_dict({**state, "task": 1, "epoch": 3, "position": 8})
    for epoch in (3, 4, 5):
        fastseed.reseed(1, epoch)
        assert list(batches) == expected[epoch][2 * (epoch == 3) :]


def test_streams_of_workers_draw_nothing_again():
    """Without per_sample the augmentation after a resume is new: that of the stop's position."""
    for workers in (1, 2):
        start(3)
        batches = Loader(
            Indexed(24), batch_size=2, shuffle=True, num_workers=workers, collate_fn=same
        )
        log, position = [], None
        for k, batch in enumerate(batches):
            log.append(batch)
            if k == 5:
                position = batches.state_dict()
        batches.load_state_dict(position)
        rest = list(batches)
        flat = [[s for batch in part for s in batch] for part in (log[:6], log[6:], rest)]
        assert [s[0] for s in flat[1]] == [s[0] for s in flat[2]]
        assert not {n for s in flat[0] for n in s[1:]} & {n for s in flat[2] for n in s[1:]}
        batches.load_state_dict(position)
        assert list(batches) == rest, "and it is reproducible"
