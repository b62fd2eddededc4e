"""Blocks of ``random.keyed`` in DataLoader workers, which draw in the scope of their worker."""

import contextlib

import pytest
import torch
from helpers.inside import blocks, scalar, streams
from helpers.support import restart
from helpers.worker_cases import flat, options
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import fastseed
from fastseed.data import Loader, per_batch, per_sample, worker_init_fn
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
@pytest.mark.parametrize("method", ["fork", pytest.param("forkserver", marks=pytest.mark.slow)])
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


@pytest.mark.parametrize("method", ["fork", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_a_worker_that_fastseed_has_not_seeded_is_an_error(method):
    wrong = r"random\.keyed: must not be called in a DataLoader worker.*worker_init_fn="
    with pytest.raises(RuntimeError, match=wrong):
        flat(DataLoader(Noise(), **options(method, workers=1)))


def test_a_worker_knows_no_mesh():
    wrong = r"random\.keyed: distinct_over must be None or \(\) in a DataLoader worker"
    with pytest.raises(ValueError, match=wrong):
        flat(plain(Noise(("dp",)), **options(workers=1)))


class Once(Dataset):
    """Sample i has what it draws in a block without an index."""

    def __init__(self, block=keyed, entries=1, **more):
        self.block, self.entries, self.more = block, entries, more

    def __len__(self):
        return 6

    def __getitem__(self, i, rng=None):
        for _ in range(self.entries):
            with self.block("noise", **self.more):
                found = torch.rand(2).tolist()
        return i, found


def drawn_again(samples):
    with keyed("noise"):
        return [(samples[0][0], torch.rand(2).tolist())]


def key_in(scope, name, index=0, domain=scalar.DOMAIN_SAMPLE):
    return scalar.stream_key(scalar.name_key(scope, scalar.name_words(name)), 0, 0, index, domain)


def scope_in(*where):
    """The scope that the key of a name in a sample is."""
    key = key_in(*where)
    return key & (2**64 - 1), key >> 64


def block_in(*sample):
    key = key_in(scope_in(*sample), sample[1], domain=scalar.DOMAIN_STREAM)
    return fastseed.random.uniform(key, (2,)).tolist()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [2, 3])
def test_a_sample_and_a_batch_are_scopes(workers, batch_size):
    job, more = scalar.scope_key(42, 1, 0, 0), options(workers=workers, batch_size=batch_size)
    for generator in (None, "numpy"):
        found = flat(Loader(per_sample(Once(), generator), **more))
        assert found == [(i, block_in(job, "keyed/noise", i)) for i in range(6)]
        with pytest.raises(RuntimeError, match=r"'noise' must be entered once in a scope"):
            flat(Loader(per_sample(Once(entries=2), generator), **more))
    more["collate_fn"] = per_batch(drawn_again)
    found = flat(Loader(per_sample(Once()), **more))
    firsts = range(0, 6, batch_size)
    assert found == [(i, block_in(scope_in(job, "batch", i), "keyed/noise")) for i in firsts]
    assert blocks.place_in_sample.get() is None and blocks.readers == 0


def test_fork_rng_in_a_sample_of_the_main_process():
    job = scalar.scope_key(42, 1, 0, 0)
    found = flat(Loader(per_sample(Once(fastseed.fork_rng)), **options(workers=0)))
    for i, drawn in found:
        key = key_in(scope_in(job, "noise/torch.cpu", i), "noise/torch.cpu", 0, 2)
        assert drawn == torch.rand(2, generator=streams.torch_generator(key)).tolist()


@pytest.mark.parametrize("generator", [None, "numpy"])
def test_a_block_where_a_batch_is_read_at_once(generator):
    data = per_sample(Once(index=0), generator, transform=lambda sample, rng=None: sample)
    with pytest.raises(RuntimeError, match="with transform=, the dataset must open no block"):
        data[0]


def opens(i):
    with keyed("noise", i):
        return torch.rand(2)


class Compiled(Dataset):
    """A function that draws in compiled code."""

    def __init__(self, run, is_inside):
        self.run, self.is_inside = run, is_inside

    def __len__(self):
        return 2

    def __getitem__(self, i):
        with contextlib.nullcontext() if self.is_inside else keyed("around"):
            return self.run(0)  # which was compiled for it


@pytest.mark.costly("compiles")
@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize(("workers", "wrap"), [(1, lambda x: x), (0, per_sample)])
def test_compiled_code_in_a_worker_or_a_sample(workers, wrap, is_inside):
    run = torch.compile(
        opens if is_inside else lambda i: torch.rand(2), backend="eager", fullgraph=True
    )
    expected = run(0) if is_inside else None
    loader = Loader(wrap(Compiled(run, is_inside)), **options(workers=workers))
    if workers == 0 and not is_inside:
        job = scalar.scope_key(42, 1, 0, 0)
        assert torch.stack(flat(loader)).tolist() == [
            block_in(job, "keyed/around", i) for i in range(2)
        ]
        return
    with pytest.raises(Exception, match="compiled code must not draw in a DataLoader worker or a"):
        flat(loader)
    if is_inside:
        assert torch.equal(run(0), expected)


class Suspended(IterableDataset):
    """A block around the yields."""

    def __init__(self, block):
        self.block = block

    def __iter__(self):
        with self.block("noise", index=0):
            yield from range(2)


@pytest.mark.parametrize("block", [keyed, fastseed.fork_rng])
def test_a_block_that_a_dataset_leaves_open(block):
    with block("around"):  # is no matter of the loader
        batches = iter(Loader(range(4), batch_size=2))
        assert len(next(batches)) == 2
    assert next(batches).tolist() == [2, 3]
    with pytest.raises(RuntimeError, match="must not yield in a block of keyed or fork_rng"):
        next(iter(Loader(Suspended(block), batch_size=1)))


class Draws(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.rand(2).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_what_has_streams_of_its_own_does_not_draw_from_a_block_around_the_loop(workers):
    for number, dataset in enumerate([per_sample(Draws()), Draws()][: 1 if workers == 0 else 2]):
        loader = Loader(dataset, batch_size=1, num_workers=workers)
        expected = flat(loader)
        with keyed(f"loop/{number}"):
            found = flat(loader)
            drawn = torch.rand(2)
        assert found == expected
        # torch's loader draws a seed first, which is of the block
        keys = [fastseed.derive_key(f"keyed/loop/{number}", index=k, rank=3) for k in range(3)]
        assert any(torch.equal(drawn, fastseed.random.uniform(key, (2,))) for key in keys)
