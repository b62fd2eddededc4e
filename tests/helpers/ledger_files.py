"""Ledgers with a file of results, and what is in it."""

import contextlib
import sqlite3
from pathlib import Path

from fastseed.rollouts import Ledger


def ledger(path: Path, prompts=12, *, batch_size=2, **options) -> Ledger:
    options = {"lag": 1, "master_seed": 42, **options}
    return Ledger(prompts, batch_size=batch_size, results=path, **options)


def count_generated(path: Path) -> int:
    with contextlib.closing(ledger(path)) as book:
        return book.counts()["generated"]


def rows(path: Path, book: Ledger | None = None) -> int:
    """Return the number of rows of a file, which an open ledger has to read itself."""
    count = "SELECT count(*) FROM rows WHERE id > 0"
    if book is not None:
        return book._results._run(count)[0][0]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(count).fetchone()[0]
