"""The ledger of rollouts, beside a queue of the standard library, which accounts for nothing."""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable

from fastseed.rollouts import Ledger

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


def units(count: int, _: str) -> Contest:
    """Rollouts of one batch."""

    def check(side: Side) -> None:
        expect(side.run() == count, f"{side.label} handles each")

    side = Side("Ledger", "run()", {"run": through_ledger(count)})
    theirs = Side("queue.Queue", "run()", {"run": through_queue(count)})
    return Contest(side, check, {"queue.Queue": lambda: [theirs]}, check)


def cases() -> list[Case]:
    """The row of this module, whose baseline does less."""
    return [Case("rollouts.ledger", "256", {"queue.Queue": None}, functools.partial(units, 256))]
