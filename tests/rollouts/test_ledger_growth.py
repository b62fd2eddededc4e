"""What a job keeps or does grows no faster than its input: counted at n and at 4 n, not timed."""

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
