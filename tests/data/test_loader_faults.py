"""Workers that die, iterations that are torn, threads in workers."""

import contextlib
import copy
import gc
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from helpers.inside import ScopedDataset, WorkerInit, scope
from helpers.loaders import Indexed, Plain, draw, flat, same, start
from torch.utils.data import IterableDataset, Subset, get_worker_info

import fastseed
from fastseed.data import Loader, per_sample


@pytest.fixture(autouse=True)
def quick_shutdown(monkeypatch):
    """torch waits so long for each worker whose iteration ended in an error."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.5)
    yield
    gc.collect()  # the iterators that the errors held


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


@pytest.mark.parametrize("persistent", [False, True])
def test_after_the_death_of_a_worker_the_next_iteration_has_new_ones(persistent, tmp_path):
    start()
    batches = Loader(
        Deadly(40, tmp_path / "died"),
        batch_size=2,
        num_workers=2,
        persistent_workers=persistent,
        prefetch_factor=8,
        timeout=30,
        collate_fn=same,
    )
    with pytest.raises(RuntimeError, match=r"worker \d \(pid \d+\) was killed by signal: 9, and"):
        flat(batches)
    for epoch in (1, 2):
        fastseed.reseed(1, epoch)
        assert flat(batches) == list(range(40))


class Large(Plain):
    """Samples of 1 MB that are no tensors: a worker waits while it sends one."""

    def __getitem__(self, i):
        return bytes(1 << 20)


def test_a_worker_that_is_killed_while_it_sends_is_named():
    """In another thread, where torch has no signal handler: it would wait for ever for the rest."""
    start()
    batches = Loader(Large(40), num_workers=2, persistent_workers=True, collate_fn=same)
    messages = []

    def run():
        iterator = iter(batches)
        next(iterator)
        kill_first(batches)
        for _ in range(2):
            with pytest.raises(RuntimeError) as error:
                list(iterator)
            messages.append(str(error.value))
        fastseed.reseed(1, 1)
        messages.append(len(flat(batches)))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert messages[0].startswith("fastseed.data.Loader: worker 0 (pid ")
    assert messages[1:] == [messages[0], 40]


def kill_first(batches):
    """Kill a worker of a loader when it has something to send."""
    worker = batches._torch._torch._iterator._workers[0]
    time.sleep(0.2)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()


def test_a_worker_that_is_killed_between_epochs_is_replaced(caplog):
    start()
    batches = Loader(Plain(8), num_workers=2, persistent_workers=True, collate_fn=same)
    assert flat(batches) == list(range(8))
    with contextlib.suppress(RuntimeError):  # torch's signal handler
        kill_first(batches)
        time.sleep(0.05)
    for epoch in (1, 2):
        fastseed.reseed(1, epoch)
        assert flat(batches) == list(range(8))
    assert [record.message for record in caplog.records if "new workers" in record.message] != []


class Failing(Plain):
    def __getitem__(self, i):
        if i == 2:
            raise ValueError("no such file")
        return os.getpid()


def test_after_an_error_of_a_dataset_workers_are_new_ones():
    start()
    batches = Loader(Failing(4), num_workers=1, persistent_workers=True, collate_fn=same)
    found = []
    for _ in range(2):
        iterator = iter(batches)
        found += next(iterator)
        with pytest.raises(ValueError, match="no such file"):
            list(iterator)
    assert len({*found}) == 2


class Endless(IterableDataset):
    """Draws and draws."""

    def __iter__(self):
        while True:
            yield draw()


def test_a_worker_that_comes_late_draws_the_same(monkeypatch):
    """It begins an iteration that was abandoned meanwhile, in the scope of the next one."""
    start()
    monkeypatch.setattr(scope, "worker", None)
    info = SimpleNamespace(id=0, num_workers=1, seed=0, dataset=None)
    monkeypatch.setattr(torch.utils.data._utils.worker, "_worker_info", info)
    cell = scope.ScopeInSharedMemory()
    source = ScopedDataset(Endless())
    cell.write(scope.IterationScope(1, 1, 0, 1))
    setup = WorkerInit(cell)
    setup(0)
    abandoned = iter(source)
    first = [next(abandoned) for _ in range(3)]
    again = iter(source)
    assert [next(again) for _ in range(3)] == first
    cell.write(scope.IterationScope(1, 2, 0, 2))
    assert next(iter(source)) not in first


def test_a_worker_that_cannot_be_seeded_has_no_scope(monkeypatch):
    start()
    monkeypatch.setattr(scope, "worker", None)
    fastseed.register_generator(lambda seed: 1 / 0, name="broken")
    setup = WorkerInit(scope.ScopeInSharedMemory())
    with pytest.raises(fastseed.ReseedError, match="broken"):
        setup(0)
    assert scope.current_scope() is None and scope.worker is None


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
        batches = Loader(Threaded(12), 3, shuffle=True, num_workers=count, collate_fn=same)
        seen.append(flat(batches))
    assert seen[0] == seen[1] and len(set(seen[0])) == 12


class Tagged(Plain):
    """Says how it is set."""

    transform = "none"

    def __getitem__(self, i):
        return self.transform


def set_in_worker(worker_id):
    get_worker_info().dataset.transform = "set in the worker"


def set_the_parents_share(worker_id):
    """As one does after random_split."""
    subset = get_worker_info().dataset
    subset.dataset.transform, subset.dataset.share = "of the parent", worker_id
    subset.generator = "of the subset"


def test_names_of_a_data_set_are_its_own_in_a_worker():
    start()
    parts = Subset(Tagged(4), [0, 2]), per_sample(Subset(Tagged(4), [1, 3]))
    for part in parts:
        batches = Loader(part, num_workers=1, collate_fn=same)
        batches.worker_init_fn = set_the_parents_share
        assert set(flat(batches)) == {"of the parent"}


def test_a_copy_of_a_data_set_of_samples_has_its_own_attributes_and_epoch():
    start()
    train = per_sample(Tagged(4))
    fastseed.reseed(1, 3)
    validation = copy.copy(train)
    validation.transform = None
    validation.set_epoch(5)
    assert (train[0], validation[0], train.transform) == ("none", None, "none")
    assert (train._task_and_epoch(), validation._task_and_epoch()) == ((1, 3), (1, 5))


def test_what_is_set_on_a_data_set_of_samples_is_the_data_sets():
    start()
    held = Tagged(4)
    samples = per_sample(held)
    samples.transform = "another"
    assert (held.transform, samples[0], samples.transform) == ("another",) * 3
    batches = Loader(samples, num_workers=1, worker_init_fn=set_in_worker, collate_fn=same)
    assert set(flat(batches)) == {"set in the worker"}
