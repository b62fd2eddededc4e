"""What a job keeps or does grows no faster than its input: counted at n and at 4 n, not timed."""

import contextlib
import functools
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.interrupts import interruptions
from helpers.rollout_jobs import Job

from fastseed.debug import Watch, bisect
from fastseed.elastic import SlotGradients
from fastseed.rollouts import Ledger, seeds
from fastseed.tools.verify import comparison

GROWTH = 4**1.3


def calls(function: Callable[[], object]) -> int:
    """Return how many functions a call calls, those in C included."""
    count = 0

    def notice(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(notice)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@contextlib.contextmanager
def trained(path: Path, batches: int, *, forget: bool = False):
    """A ledger with a file after many batches."""
    book = Ledger(10**6, batch_size=2, lag=1, master_seed=1, results=path)
    with contextlib.closing(book):
        book._results._run("PRAGMA synchronous = OFF")  # no machine goes down here
        for _ in range(batches):
            book.complete_many([(unit, "text" * 500) for unit in book.lease(9)])
            book.mark_trained(book.next_batch())
            if forget:
                book.forget(book.state_dict())
        yield book


def loading_a_state(path: Path, n: int) -> int:
    with trained(path, n) as book:
        state = book.state_dict()
        return calls(lambda: book.load_state_dict(state))


def completing_many(path: Path, n: int) -> int:
    with contextlib.closing(Ledger(n, batch_size=n, master_seed=1, results=path)) as book:
        return calls(lambda: book.complete_many([(unit, unit.number) for unit in book.lease(n)]))


def layered(layers: int) -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(layers)))


def record(path: Path, *, steps: int = 1, layers: int = 1) -> Path:
    model = layered(layers)
    path.mkdir(parents=True)
    with Watch(model, path=path, modules=True) as watch:
        for _ in range(steps):
            model(torch.rand(1, 1)).sum().backward()
            watch.record()
    return path


def comparing(path: Path, **sizes: int) -> int:
    folders = [record(path / name, **sizes) for name in "ab"]  # which differ everywhere
    return calls(lambda: bisect(*folders))


def verifying_ranks(path: Path, n: int) -> int:
    folders = {ranks: record(path / str(ranks), steps=n) for ranks in (1, 2)}
    runs = [SimpleNamespace(number=ranks, recording=one) for ranks, one in folders.items()]
    return calls(lambda: comparison.compare_ranks(runs))


def slot_step(slots: int, layers: int) -> int:
    model = layered(layers)
    gradients = SlotGradients(model, slots)

    def run() -> None:
        for _, x in gradients.step(torch.ones(1, 1) for _ in range(slots)):
            model(x).sum().backward()

    run()
    model.zero_grad()
    return calls(run)


QUANTITIES: dict[str, Callable[[Path, int], int]] = {
    "batches of a ledger": lambda path, n: calls(lambda: trained(path, n).__enter__().close()),
    "loading a state": loading_a_state,
    "completing many": completing_many,
    "seeds": lambda path, n: calls(lambda: seeds(0, [f"{i}" for i in range(n)], 4, master_seed=1)),
    "recorded steps": lambda path, n: calls(lambda: record(path, steps=n)),
    "recorded layers": lambda path, n: calls(lambda: record(path, layers=n)),
    "bytes": lambda path, n: (record(path, steps=n) / "rank-0.watch").stat().st_size,
    "compared steps": lambda path, n: comparing(path, steps=n),
    "compared layers": lambda path, n: comparing(path, layers=n),
    "compared numbers of ranks": verifying_ranks,
    "slots": lambda path, n: slot_step(n, 1),
    "parameters": lambda path, n: slot_step(2, n),
}


@pytest.mark.parametrize("name", QUANTITIES)
def test_nothing_grows_faster_than_its_input(tmp_path, name):
    quantity = QUANTITIES[name]
    quantity(tmp_path / "first", 24)  # imports, caches
    few, many = (quantity(tmp_path / str(n), n) for n in (24, 96))
    assert 24 < few < many <= GROWTH * few


def test_the_file_and_the_restart_of_a_job_that_forgets_do_not_grow(tmp_path):
    def sizes(n: int, *, forget: bool) -> tuple[int, int]:
        path = tmp_path / f"{n} {forget}"
        with trained(path, n, forget=forget) as book:
            state = book.state_dict()
        tracemalloc.start()
        with trained(path, 0) as book:
            book.load_state_dict(state)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak, os.path.getsize(path)

    sizes(10, forget=True)
    few, many = sizes(50, forget=True), sizes(200, forget=True)
    assert few[1] == many[1] and many[0] < 1.1 * few[0]
    all_rows = sizes(200, forget=False)
    assert all_rows[1] > 200 * 4000 and all_rows[0] < 600_000  # a page of rows is read at once


class Interrupted:
    """A ledger that is used up to a point, and the call that an interrupt stops."""

    def __init__(self, path: Path | None, call: str) -> None:
        self.path, self.call = path, call

    def prepare(self) -> None:
        if self.path is not None:
            for suffix in ("", "-wal"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self.book = Ledger(
            4, batch_size=2, samples=2, window=2, lag=1, master_seed=1, results=self.path
        )
        self.units = self.book.lease(4)
        for unit in self.units[1:] if self.call != "mark_trained" else self.units:
            self.book.complete(unit, unit.number)
        self.batch, self.state = self.book.next_batch(), self.book.state_dict()

    def run(self) -> None:
        book = self.book
        if self.call == "mark_trained":
            book.mark_trained(self.batch)
        elif self.call == "lease":
            book.lease(9)
        elif self.call == "load_state_dict":
            book.load_state_dict(book.state_dict())
        elif self.call == "complete_many":
            book.complete_many([(self.units[0], 0)])
        elif self.call == "release":
            book.release(self.units[0])
        else:
            arguments = {"complete": [0], "drop": ["unwanted"]}[self.call]
            getattr(book, self.call)(self.units[0], *arguments)

    def finish(self) -> list[int]:
        """Go on from the state to the end; return the units that were trained."""
        book, trained = self.book, []
        book.load_state_dict(self.state)
        for _ in range(20):
            if book.done:
                break
            for unit in book.lease(99):
                book.complete(unit, unit.number)
            if (batch := book.next_batch()) is not None:
                trained += [unit.number for unit in batch.units]
                book.mark_trained(batch)
        assert book.done and book._lock.acquire(blocking=False)
        counts = book.counts()
        assert counts["trained"] == len(trained) and counts["trained"] + counts["dropped"] == 8
        book.close()
        return trained


@pytest.mark.costly("an interrupt at each line")
@pytest.mark.parametrize("with_file", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize(
    "call",
    ["lease", "complete", "complete_many", "drop", "release", "mark_trained", "load_state_dict"],
)
def test_an_interrupt_loses_no_unit_and_leaves_a_usable_file(tmp_path, call, with_file):
    job = Interrupted(tmp_path / "results" if with_file else None, call)
    points = 0
    for where in interruptions(job.run, job.prepare):
        points += 1
        trained = job.finish()
        dropped = {0} if call == "drop" else set()
        assert len(set(trained)) == len(trained) and set(trained) >= set(range(8)) - dropped, where
        if with_file and points % 5 == 0:
            Ledger(
                4, batch_size=2, samples=2, window=2, lag=1, master_seed=1, results=job.path
            ).close()
    assert points > 3


PROMPTS, SAMPLES = 500, 2
UNITS = PROMPTS * SAMPLES


def run(seed: int = 1, *, kills: int = 10**6, **options: Any) -> Job:
    options = {"prompts": PROMPTS, "batch_size": 4, "samples": SAMPLES, **options}
    return Job(kills=kills, seed=seed, **options).run()


def is_complete(job: Job, units: int = UNITS) -> bool:
    """Return whether each unit was trained once, in the chain that led to the result."""
    trained = job.trained()
    return len(trained) == units and set(trained.values()) == {1}


@functools.cache
def uninterrupted(lag: int) -> Job:
    return run(kills=0, lag=lag)


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_strict_batches_and_weights_are_those_without_kills(lag, seed):
    killed, whole = run(seed, lag=lag), uninterrupted(lag)
    assert sum(killed.killed.values()) > 80 and len(killed.killed) == 5  # at each point
    assert is_complete(killed) and killed.changed == 0
    assert killed.chain == whole.chain
    assert killed.weights[max(killed.weights)] == whole.weights[max(whole.weights)]
    assert sum(killed.generated.values()) > UNITS  # work was repeated


def test_a_window_trains_each_unit_once():
    killed = run(window=3, lag=2)
    assert is_complete(killed) and killed.chain != uninterrupted(2).chain
    assert killed.changed > 0  # without a file, other prompts come first the second time


@pytest.mark.parametrize("window", [1, 3])
def test_a_file_of_results_gives_the_same_batches_and_keeps_them(window, tmp_path):
    file: dict[str, Path] = {"results": tmp_path / "results"}
    options = {"prompts": 200, "window": window, "lag": 2}
    kept, lost = run(3, **options, **file), run(3, **options)
    for job in (kept, lost):
        assert sum(job.killed.values()) > 30 and is_complete(job, 200 * SAMPLES)
    assert kept.changed == 0
    again = [sum(job.generated.values()) / 400 for job in (kept, lost)]
    assert again[0] < again[1]  # less work was repeated
