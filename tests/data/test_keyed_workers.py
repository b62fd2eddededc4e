"""Blocks of ``random.keyed`` in DataLoader workers, which draw in the scope of their worker."""

from __future__ import annotations

import pytest
import torch
from helpers.support import restart
from helpers.worker_cases import flat, options
from torch.utils.data import DataLoader, Dataset, get_worker_info

import fastseed
from fastseed.data import Loader, per_sample, worker_init_fn
from fastseed.random import keyed


class Noise(Dataset):
    """Sample i is the worker that makes it, with two draws of the block of index i."""

    def __init__(self, distinct_over=None):
        self.distinct_over = distinct_over

    def __len__(self):
        return 6

    def __getitem__(self, i):
        info = get_worker_info()
        with keyed("noise", i, distinct_over=self.distinct_over):
            torch.rand(2)
            found = torch.rand(2)
        return -1 if info is None else info.id, i, found.tolist()


@pytest.fixture(autouse=True)
def _a_job():
    fastseed.init(42, rank=3, world_size=8)
    restart(5)


def expected(worker, index, epoch=0, rank=3):
    """Draw 1 of a block in a worker, whose scope is the beginning of the epoch."""
    place = {"task": 1, "epoch": epoch, "rank": rank, "worker": worker + 1}
    key = fastseed.derive_key("keyed/noise", index=index << 24 | 1, **place)
    return fastseed.random.uniform(key, (2,)).tolist()


def plain(dataset, **given):
    return DataLoader(dataset, worker_init_fn=worker_init_fn, **given)


@pytest.mark.parametrize("distinct_over", [None, ()])
@pytest.mark.parametrize("make", [plain, Loader])
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_block_in_a_worker_draws_in_the_scope_of_the_worker(method, make, distinct_over):
    found = flat(make(Noise(distinct_over), **options(method, batch_size=1)))
    assert [(worker, i) for worker, i, _ in found] == [(i % 2, i) for i in range(6)]
    rank = 3 if distinct_over is None else fastseed.SHARED
    assert [drawn for *_, drawn in found] == [expected(w, i, rank=rank) for w, i, _ in found]


def test_a_persistent_worker_goes_on_to_the_next_epoch():
    loader = Loader(Noise(), persistent_workers=True, **options(batch_size=1))
    for epoch in (0, 1):
        fastseed.reseed(1, epoch)
        for worker, i, drawn in flat(loader):
            assert drawn == expected(worker, i, epoch)


@pytest.mark.parametrize("make", [plain, Loader])
def test_without_workers_a_block_draws_in_the_scope_of_the_job(make):
    for worker, i, drawn in flat(make(Noise(), **options(workers=0, batch_size=1))):
        key = fastseed.derive_key("keyed/noise", index=i << 24 | 1, task=1, step=5)
        assert worker == -1 and drawn == fastseed.random.uniform(key, (2,)).tolist()


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_worker_that_fastseed_has_not_seeded_is_an_error(method):
    wrong = r"random\.keyed: must not be called in a DataLoader worker.*worker_init_fn="
    with pytest.raises(RuntimeError, match=wrong):
        flat(DataLoader(Noise(), **options(method, workers=1)))


def test_a_worker_knows_no_mesh():
    wrong = r"random\.keyed: distinct_over must be None or \(\) in a DataLoader worker"
    with pytest.raises(ValueError, match=wrong):
        flat(plain(Noise(("dp",)), **options(workers=1)))


class Draws(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.rand(2).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_what_has_streams_of_its_own_does_not_draw_from_a_block_around_the_loop(workers):
    for dataset in [per_sample(Draws()), Draws()][: 1 if workers == 0 else 2]:
        loader = Loader(dataset, batch_size=1, num_workers=workers)
        expected = flat(loader)
        with keyed("loop", 0):
            found = flat(loader)
            drawn = torch.rand(2)
        assert found == expected
        # torch's loader draws a seed first, which is of the block
        keys = [fastseed.derive_key("keyed/loop", index=k, rank=3) for k in range(3)]
        assert any(torch.equal(drawn, fastseed.random.uniform(key, (2,))) for key in keys)
