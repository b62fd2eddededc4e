"""What a job keeps or does grows no faster than its input: counted at n and at 4 n, not timed."""

from __future__ import annotations

import contextlib
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

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
    with contextlib.closing(
        Ledger(10**6, batch_size=2, lag=1, master_seed=1, results=path)
    ) as book:
        book._results._run("PRAGMA synchronous = OFF")  # no machine goes down here
        for _ in range(batches):
            book.complete_many([(unit, "text" * 500) for unit in book.lease(9)])
            book.mark_trained(book.next_batch())
            if forget:
                book.forget(book.state_dict())
        yield book


def batches_of_a_ledger(path: Path, n: int) -> int:
    return calls(lambda: trained(path, n).__enter__().close())


def loading_a_state(path: Path, n: int) -> int:
    with trained(path, n) as book:
        state = book.state_dict()
        return calls(lambda: book.load_state_dict(state))


def completing_many(path: Path, n: int) -> int:
    with contextlib.closing(Ledger(n, batch_size=n, master_seed=1, results=path)) as book:
        return calls(lambda: book.complete_many([(unit, unit.number) for unit in book.lease(n)]))


def seeds_of_prompts(path: Path, n: int) -> int:
    return calls(lambda: seeds(0, [f"prompt {i}" for i in range(n)], 4, master_seed=1))


def record(path: Path, *, steps: int = 1, layers: int = 1) -> Path:
    model = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(layers)))
    path.mkdir(parents=True)
    with Watch(model, path=path, modules=True) as watch:
        for _ in range(steps):
            model(torch.rand(1, 1)).sum().backward()
            watch.record()
    return path


def recording_steps(path: Path, n: int) -> int:
    return calls(lambda: record(path, steps=n))


def recording_layers(path: Path, n: int) -> int:
    return calls(lambda: record(path, layers=n))


def bytes_of_a_recording(path: Path, n: int) -> int:
    return sum(file.stat().st_size for file in record(path, steps=n).iterdir())


def comparing_steps(path: Path, n: int) -> int:
    folders = [record(path / name, steps=n) for name in "ab"]  # every step differs
    return calls(lambda: bisect(*folders))


def comparing_layers(path: Path, n: int) -> int:
    folders = [record(path / name, layers=n) for name in "ab"]
    return calls(lambda: bisect(*folders))


def verifying_ranks(path: Path, n: int) -> int:
    runs = [
        SimpleNamespace(number=ranks, recording=record(path / str(ranks), steps=n))
        for ranks in (1, 2)
    ]
    return calls(lambda: comparison.compare_ranks(runs))


def step(slots: int, layers: int) -> int:
    model = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(layers)))
    gradients = SlotGradients(model, slots)

    def run() -> None:
        for _, x in gradients.step(torch.ones(1, 1) for _ in range(slots)):
            model(x).sum().backward()
        model.zero_grad()

    run()
    return calls(run)


def slots_of_a_step(path: Path, n: int) -> int:
    return step(n, 1)


def parameters_of_a_step(path: Path, n: int) -> int:
    return step(2, n)


@pytest.mark.parametrize(
    "quantity",
    [
        batches_of_a_ledger, loading_a_state, completing_many, seeds_of_prompts, recording_steps,
        recording_layers, bytes_of_a_recording, comparing_steps, comparing_layers, verifying_ranks,
        slots_of_a_step, parameters_of_a_step,
    ],
)  # fmt: skip
def test_nothing_grows_faster_than_its_input(tmp_path, quantity):
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
