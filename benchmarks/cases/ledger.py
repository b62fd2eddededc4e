"""The ledger of rollouts, beside a queue of the standard library, which accounts for nothing."""

from __future__ import annotations

import functools
import json
import queue
import random
from collections.abc import Callable

from fastseed.rollouts import Ledger, ledger_state

from ..case import Case, Contest, Side, expect

UNITS, SAMPLES = 10**7, 4


def through_ledger(count: int) -> Callable[[], int]:
    """Return what leases, completes and trains ``count`` rollouts, one at a time, of 10^7."""
    book = Ledger(
        UNITS // SAMPLES, batch_size=count // SAMPLES, samples=SAMPLES, lag=2, master_seed=1
    )
    state = book.state_dict()

    def run() -> int:
        if book.done:
            book.load_state_dict(state)
        for _ in range(count):
            (unit,) = book.lease()
            book.complete(unit)
        batch = book.next_batch()
        book.mark_trained(batch)
        return len(batch.units)

    return run


def through_queue(count: int) -> Callable[[], int]:
    """Return what puts, gets and finishes ``count`` items."""
    items: queue.Queue[int] = queue.Queue()

    def run() -> int:
        for number in range(count):
            items.put(number)
        for _ in range(count):
            items.get()
            items.task_done()
        return count

    return run


def units(count: int) -> Contest:
    """Rollouts of one batch."""
    side = Side("Ledger", "run()", {"run": through_ledger(count)})
    baseline = Side("queue.Queue", "run()", {"run": through_queue(count)})

    def check(contest: Contest) -> None:
        for one in (contest.fastseed, *contest.baselines):
            expect(one.run() == count, f"{one.label} handles each")

    return Contest(side, (baseline,), check)


def load(holes: int) -> Contest:
    """A state of 10^7 units with single open ones; the baseline reads their numbers from JSON."""
    book = Ledger(UNITS, batch_size=UNITS // 2, lag=1, window=2, master_seed=1)
    numbers = sorted(random.Random(1).sample(range(UNITS), holes))
    held = ledger_state.State(1, UNITS, numbers, dropped={"old": UNITS // 2})
    state = ledger_state.write(book._plan, held)
    side = Side("load_state_dict", "load(state)", {"load": book.load_state_dict, "state": state})
    names = {"loads": json.loads, "text": json.dumps(numbers)}
    baseline = Side("json.loads", "loads(text)", names)

    def check(contest: Contest) -> None:
        contest.fastseed.run()
        expect([unit.number for unit in book.lease(2 * holes)] == numbers, "the open units")
        expect(contest.baselines[0].run() == numbers, "the numbers")

    return Contest(side, (baseline,), check)


def cases() -> list[Case]:
    """The rows of this module; the baselines do less."""
    return [
        Case("rollouts.ledger/cpu/256", "queue.Queue", None, functools.partial(units, 256)),
        Case(
            "rollouts.ledger.load_state_dict/cpu/1000-holes", "json.loads", None,
            functools.partial(load, 1000),
        ),
    ]  # fmt: skip
