"""An epoch inside torch.compile is the epoch outside of it, as with torch's own DataLoader."""

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import fastseed
from fastseed.data import Loader, Seekable, per_sample

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
