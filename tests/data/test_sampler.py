"""ShuffleSampler: one order on any number of ranks, entered anywhere, where torch's samplers go."""

import pytest
import torch
from helpers.sampled import SIZES, WORLDS, order, turns
from helpers.support import without_scope
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import fastseed
from fastseed.data import Loader, Repeat, ShuffleSampler


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, 1, 0)
    fastseed.reseed(1, 7)


def shares(n: int, world_size: int, first: int = 0, **more) -> list[list[int]]:
    """Return the indices of each rank."""
    found = []
    for rank in range(world_size):
        sampler = ShuffleSampler(n, rank=rank, world_size=world_size, **more)
        sampler.seek(first)
        found.append(list(sampler))
    return found


def plain(indices: list[int]) -> bool:
    return all(type(index) is int for index in indices)


@pytest.mark.parametrize("world_size", WORLDS)
def test_one_order_for_every_number_of_ranks(world_size):
    """Positions past the last repeat the first ones; with drop_last the last are left out."""
    for n in SIZES:
        whole = turns(shares(n, world_size))
        more = whole[n:]
        assert whole[:n] == order(n) and plain(whole[:n])
        assert len(whole) == -(-n // world_size) * world_size
        assert more == [order(n)[k % n] for k in range(len(more))]
        assert all(type(index) is Repeat for index in more)
        assert [index.occurrence for index in more] == [1 + k // n for k in range(len(more))]
        whole = turns(shares(n, world_size, drop_last=True))
        assert whole == order(n)[: n // world_size * world_size] and plain(whole)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_seek_goes_on_with_any_number_of_ranks(world_size, drop_last):
    for n in (1, 5, 12, 17, 97):
        for first in {0, 1, n // 3, n - 1, n}:
            whole = turns(shares(n, world_size, first, drop_last=drop_last))
            left = n - first
            if drop_last:
                assert whole == order(n)[first : first + left // world_size * world_size]
                continue
            assert whole[:left] == order(n)[first:]
            assert len(whole) == -(-left // world_size) * world_size
            assert whole[left:] == [order(n)[k % n] for k in range(len(whole) - left)]
            assert all(type(index) is Repeat for index in whole[left:])


def test_without_shuffle():
    assert turns(shares(10, 2, shuffle=False)) == list(range(10))
    whole = turns(shares(10, 4, shuffle=False))
    assert whole == [*range(10), 0, 1] and whole[10].occurrence == 1
    sampler = ShuffleSampler(10**12, shuffle=False)
    sampler.seek(10**12 - 3)
    assert list(iter(sampler)) == [10**12 - 3, 10**12 - 2, 10**12 - 1]
    assert sampler.indices(5, 9).tolist() == [5, 6, 7, 8]
    assert sampler.index(77) == 77


def test_chunks_are_seamless():
    n = 70_001  # several chunks of every size
    assert list(ShuffleSampler(n)) == order(n)
    assert turns(shares(n, 3))[:n] == order(n)


def test_largest_data_set():
    sampler = ShuffleSampler(2**48, rank=5, world_size=2**24 - 1)
    iterator = iter(sampler)
    first = [next(iterator) for _ in range(3)]
    assert first == [sampler.index(5 + k * (2**24 - 1)) for k in range(3)]
    assert len(sampler) == -(-(2**48) // (2**24 - 1))
    sampler.seek(2**48 - 6)
    assert list(iter(sampler)) == [sampler.index(2**48 - 1)]


def test_the_order_is_that_of_the_scope_at_iter_time():
    sampler = ShuffleSampler(50)
    for epoch in (7, 8, 7):
        fastseed.reseed(1, epoch, 5)
        assert list(sampler) == order(50, epoch)
    iterator = iter(sampler)
    fastseed.reseed(1, 9)
    assert list(iterator) == order(50, 7)


def test_set_epoch_and_set_scope_hold():
    sampler = ShuffleSampler(50)
    sampler.set_epoch(3)
    fastseed.reseed(1, 9)
    assert list(sampler) == order(50, 3)
    sampler.set_scope(2, 4)
    assert list(sampler) == order(50, 4, task=2)
    assert (sampler.task, sampler.epoch) == (2, 4)


def test_set_epoch_is_enough():
    without_scope()
    sampler = ShuffleSampler(50)
    with pytest.raises(RuntimeError, match=r"call fastseed.reseed\(task, epoch\) first, or set_ep"):
        iter(sampler)
    sampler.set_epoch(3)
    assert list(sampler) == order(50, 3, task=0)


def test_a_registered_sampler_follows():
    sampler = ShuffleSampler(50)
    fastseed.register_generator(sampler)
    try:
        fastseed.reseed(1, 11)
        assert (sampler.task, sampler.epoch) == (1, 11)
        assert list(sampler) == order(50, 11)
    finally:
        fastseed.unregister_generator(sampler)


def test_rank_and_size_are_the_jobs():
    sampler = ShuffleSampler(10)
    found = []
    for rank in range(3):
        fastseed.init(42, rank=rank, world_size=3)
        fastseed.reseed(1, 7)
        assert len(sampler) == 4
        found.append(list(sampler))
    assert found == shares(10, 3)


def test_the_mesh_says_how_data_are_shared():
    fastseed.init(42, mesh={"dp": (1, 2), "tp": (2, 4)}, rank=6, world_size=8)
    fastseed.reseed(1, 7)
    assert list(ShuffleSampler(10)) == order(10)[1::2]


def test_index_and_indices():
    sampler = ShuffleSampler(1000)
    assert sampler.indices().tolist() == order(1000)
    assert sampler.indices(10, 20).tolist() == order(1000)[10:20]
    assert sampler.indices(990).tolist() == order(1000)[990:]
    assert [sampler.index(i) for i in range(0, 1000, 100)] == order(1000)[::100]
    assert sampler.index(5, epoch=8) == order(1000, 8)[5]
    assert sampler.indices(task=1, epoch=8).tolist() == order(1000, 8)
    out = torch.zeros(1000, dtype=torch.int64)
    assert sampler.indices(out=out) is out and out.tolist() == order(1000)


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


def test_a_sampler_with_ranks_of_its_own_has_them_in_a_loader():
    sampler = ShuffleSampler(10, rank=1, world_size=2)
    assert torch.cat(list(Loader(range(10), 4, sampler=sampler))).tolist() == list(sampler)
