"""Iterations that are left early, fail, overlap or are repeated."""

import gc
import multiprocessing
import time
from itertools import islice

import pytest
import torch
from helpers.loaders import Indexed, Plain, flat, same, start
from torch.utils.data import Dataset, IterableDataset

import fastseed
from fastseed.data import Loader, Seekable, per_sample


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_iteration_left_early_leaves_no_trace(workers, persistent):
    if persistent and not workers:
        pytest.skip("torch refuses it")
    settings = {
        "batch_size": 2,
        "shuffle": True,
        "num_workers": workers,
        "persistent_workers": persistent,
        "prefetch_factor": 4 if workers else None,
        "collate_fn": same,
    }
    start(0)
    expected = {}
    for epoch in (0, 1):
        fastseed.reseed(1, epoch)
        expected[epoch] = list(Loader(Indexed(20), **settings))
    batches = Loader(Indexed(20), **settings)
    for stop in (1, 3, 9):
        fastseed.reseed(1, 0)
        assert list(islice(batches, stop)) == expected[0][:stop]
        for epoch in (1, 0):
            fastseed.reseed(1, epoch)
            assert list(batches) == expected[epoch], (stop, epoch)


@pytest.mark.parametrize("workers", [0, 1])
def test_two_iterations_of_one_loader_in_turns(workers):
    start(0)
    batches = Loader(Plain(12), 2, True, num_workers=workers, collate_fn=same)
    first = list(batches)
    fastseed.reseed(1, 1)
    second = list(batches)
    fastseed.reseed(1, 0)
    one = iter(batches)
    taken = [next(one)]
    fastseed.reseed(1, 1)
    other = iter(batches)
    pairs = list(zip(one, other, strict=False))
    assert taken + [a for a, _ in pairs] == first
    assert [b for _, b in pairs] == second[: len(pairs)]


def test_persistent_workers_serve_one_iteration_at_a_time():
    start()
    batches = Loader(Plain(12), num_workers=1, persistent_workers=True, collate_fn=same)
    one = iter(batches)
    next(one)
    other = iter(batches)
    with pytest.raises(RuntimeError, match="iterated again"):
        next(one)
    assert flat(other) == list(range(12))


def test_len_is_that_of_a_whole_epoch():
    start()
    for drop_last, batches_of_3 in ((False, 4), (True, 3)):
        batches = Loader(Plain(10), 3, True, drop_last=drop_last)
        assert len(batches) == batches_of_3
        next(iter(batches))
        assert len(batches) == batches_of_3
    assert len(Loader(Plain(10), batch_size=None)) == 10


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_end_with_their_iteration_or_loader(persistent):
    start()
    gc.collect()  # what failed iterations of other tests left
    others = set(multiprocessing.active_children())

    def workers():
        return set(multiprocessing.active_children()) - others

    gc.disable()  # nothing is left to the search for cycles
    try:
        batches = Loader(Plain(40), num_workers=2, persistent_workers=persistent)
        iterator = iter(batches)
        next(iterator)
        assert len(workers()) == 2
        del iterator
        if persistent:
            assert len(workers()) == 2
            del batches
        deadline = time.monotonic() + 30
        while workers() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not workers()
    finally:
        gc.enable()


N = 8


class Noisy(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, index):
        return index + torch.rand(())


class Batched(Noisy):
    def __getitems__(self, indices):
        return [self[i] for i in indices]


def noisy_from(position):
    return (i + torch.rand(()) for i in range(position, N))


class Flow(IterableDataset):
    def __iter__(self):
        return noisy_from(0)


def epoch(batches):
    return torch.cat([2 * batch for batch in batches])


def assert_same(make):
    found = []
    for run in (epoch, torch.compile(epoch, backend="eager")):
        fastseed.init(42)
        fastseed.reseed(1, 0)
        found.append((run(make()), torch.get_rng_state()))
    (plain, state), (compiled, state_compiled) = found
    assert plain.shape == (N,) and torch.equal(plain, compiled)
    assert torch.equal(state, state_compiled)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("wrap", [lambda data: data, per_sample], ids=["plain", "per_sample"])
def test_an_epoch_in_a_compiled_function(wrap, workers):
    assert_same(lambda: Loader(wrap(Noisy()), 2, shuffle=True, num_workers=workers))


@pytest.mark.slow
@pytest.mark.parametrize("make", [Batched, Flow, lambda: Seekable(noisy_from)])
def test_other_kinds_of_data_sets(make):
    assert_same(lambda: Loader(make(), 2))
