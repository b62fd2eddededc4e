"""Workers that die, iterations that are torn, threads in workers."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.loaders import Indexed, Plain, draw, flat, same, start
from torch.utils.data import IterableDataset, get_worker_info

import fastseed
from fastseed.data import Loader, ResumableLoader, loader, per_sample, workers
from fastseed.data.shared_scope import ScopeCell


class Deadly(Plain):
    """A worker that reads sample 5 in the first epoch is killed."""

    def __init__(self, n, path):
        super().__init__(n)
        self.path = path

    def __getitem__(self, i):
        if i == 5 and not self.path.exists():
            self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(i)


@pytest.mark.parametrize("kind", [Loader, ResumableLoader])
@pytest.mark.parametrize("persistent", [False, True])
def test_after_the_death_of_a_worker_the_next_iteration_has_new_ones(kind, persistent, tmp_path):
    start()
    batches = kind(
        Deadly(40, tmp_path / "died"),
        batch_size=2,
        num_workers=2,
        persistent_workers=persistent,
        prefetch_factor=8,
        timeout=30,
        collate_fn=same,
    )
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        flat(batches)
    for epoch in (1, 2):
        fastseed.reseed(1, epoch)
        assert flat(batches) == list(range(40))


class Interrupting:
    """Memory in whose middle Ctrl-C arrives."""

    def __init__(self, words):
        self.words = words

    def __getitem__(self, i):
        return self.words[i]

    def __setitem__(self, i, value):
        if value == 7:
            raise KeyboardInterrupt
        self.words[i] = value


def test_a_cell_whose_writing_was_interrupted_is_whole_after_the_next_write():
    cell = ScopeCell()
    cell.write(1, 5)
    words, cell._words = cell._words, Interrupting(cell._words)
    with pytest.raises(KeyboardInterrupt):
        cell.write(1, 7)
    cell._words = words
    cell.write(1, 8)
    assert cell.read()[:3] == (1, 8, 0)  # it waited for ever
    assert cell.generation == 2


class Endless(IterableDataset):
    """Draws and draws."""

    def __iter__(self):
        while True:
            yield draw()


def test_a_worker_that_comes_late_draws_the_same(monkeypatch):
    """It begins an iteration that was abandoned meanwhile, in the scope of the next one."""
    start()
    monkeypatch.setattr(workers, "_active", None)
    monkeypatch.setattr(workers.job, "_job", None)
    monkeypatch.setattr(workers.shared, "_staying", None)
    cell = ScopeCell()
    source = workers.follow(Endless(), cell)
    cell.write(1, 1)
    setup = workers.WorkerSetup(cell)
    setup(0)
    abandoned = iter(source)
    first = [next(abandoned) for _ in range(3)]
    again = iter(source)
    assert [next(again) for _ in range(3)] == first
    cell.write(1, 2)
    assert next(iter(source)) not in first


class Threaded(Indexed):
    """Fetches a batch in threads, whose generators are made for the sample."""

    def __init__(self, n):
        super().__init__(n)
        self.samples = per_sample(Drawn(n), generator="numpy")

    def __getitems__(self, indices):
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(self.samples.__getitem__, indices))


class Drawn(Indexed):
    """Sample i and a number."""

    def __getitem__(self, i, rng):
        return int(i), int(rng.integers(2**62))


def test_threads_in_workers_know_the_epoch():
    seen = []
    for count in (0, 2):
        start(4)
        batches = loader(Threaded(12), 3, shuffle=True, num_workers=count, collate_fn=same)
        seen.append(flat(batches))
    assert seen[0] == seen[1] and len(set(seen[0])) == 12


class Tagged(Plain):
    """Says how it is set."""

    transform = "none"

    def __getitem__(self, i):
        return self.transform


def set_in_worker(worker_id):
    get_worker_info().dataset.transform = "set in the worker"


def test_what_is_set_on_a_data_set_of_samples_is_the_data_sets():
    start()
    held = Tagged(4)
    samples = per_sample(held)
    samples.transform = "another"
    assert (held.transform, samples[0], samples.transform) == ("another",) * 3
    del samples.transform
    assert (held.transform, samples[0]) == ("none", "none")
    batches = loader(samples, num_workers=1, worker_init_fn=set_in_worker, collate_fn=same)
    assert set(flat(batches)) == {"set in the worker"}
