"""ShuffleSampler: copies, in a DataLoader, and what it refuses."""

from __future__ import annotations

import copy
import itertools
import pickle
import tracemalloc

import pytest
from helpers.sampled import order, turns
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import fastseed
from fastseed.data import ShuffleSampler


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, 1, 0)
    fastseed.reseed(1, 7)


# ---------------------------------------------------------------- copies


def take(sampler: ShuffleSampler, count: int):
    iterator = iter(sampler)
    return [next(iterator) for _ in range(count)]


def test_copies_go_their_own_way():
    sampler = ShuffleSampler(30, rank=1, world_size=2)
    take(sampler, 4)
    for other in (pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)):
        assert repr(other) == repr(sampler)
        assert list(other) == order(30)[1::2]


# ---------------------------------------------------------------- in a DataLoader


class Squares(Dataset):
    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        return index * index


def script(sampler_class, workers: int = 0, **more) -> list[list[int]]:
    """A training loop as it is written for DistributedSampler."""
    dataset = Squares(22)
    sampler = sampler_class(dataset, **more)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=workers)
    assert len(loader) == -(-len(sampler) // 4)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append([int(x) for batch in loader for x in batch])
    return epochs


@pytest.mark.parametrize("workers", [0, 2])
def test_in_the_place_of_distributed_sampler(workers):
    theirs = [script(DistributedSampler, num_replicas=4, rank=r) for r in range(4)]
    ours = [script(ShuffleSampler, workers, world_size=4, rank=r) for r in range(4)]
    for epoch in range(2):
        seen = turns([rank[epoch] for rank in ours])
        assert [len(rank[epoch]) for rank in ours] == [len(rank[epoch]) for rank in theirs]
        assert seen[:22] == [j * j for j in order(22, epoch)]
        assert sorted(set(seen)) == sorted({x for rank in theirs for x in rank[epoch]})


def test_memory_does_not_depend_on_the_size():
    large = ShuffleSampler(2**48)
    tracemalloc.start()
    try:
        distinct = len(set(itertools.islice(large, 100_000)))
        large.index(2**47)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert distinct == 100_000
    assert peak < 40_000_000  # the set of what was found, and chunks


def test_a_refused_call_changes_nothing():
    sampler = ShuffleSampler(10)
    for call in (
        lambda: sampler.seek(11),
        lambda: sampler.indices(5, 4),
        lambda: sampler.index(10),
    ):
        with pytest.raises(ValueError, match=r"must be in \[0, "):
            call()
    sampler.seek(7)
    assert [list(sampler), list(sampler)] == [order(10)[7:], order(10)], "for one iteration"
