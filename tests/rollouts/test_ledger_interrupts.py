"""Interrupts at every point of a ledger's calls: from a state no unit is lost, nor the file."""

from pathlib import Path

import pytest
from helpers.interrupts import interruptions

from fastseed.rollouts import Ledger


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
