"""The file of results: which damage is an error, which writes fail, and who may write."""

import contextlib
import os
import resource
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from helpers.ledger_files import count_generated, ledger, rows
from helpers.support import run_python

from fastseed.rollouts import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rollouts.results"


# ---------------------------------------------------------------- damage


def make_file(path: Path) -> bytes:
    book = ledger(path)
    for unit in book.lease(4):
        book.complete(unit, f"text {unit.number}")
    book.close()
    return path.read_bytes()


def test_every_flipped_byte_is_an_error_or_changes_nothing(path):
    whole = make_file(path)
    errors = 0
    for position in [*range(100), *range(100, len(whole), 11)]:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            book = ledger(path)
        except (ValueError, OSError) as error:
            assert str(error).startswith("fastseed.rollouts.Ledger: results")
            errors += 1
            continue
        batches = [book.next_batch().results]
        book.mark_trained(book.next_batch())
        batches.append(book.next_batch().results)
        book.close()
        assert batches == [["text 0", "text 1"], ["text 2", "text 3"]], position
    assert errors > 30
    at = whole.index(b"text 2")
    path.write_bytes(whole[:at] + b"teXt 2" + whole[at + 6 :])
    with pytest.raises(ValueError, match=r"must be undamaged, got another SHA-256 in row 3"):
        ledger(path)


def test_a_file_that_was_cut_is_an_error(path):
    whole = make_file(path)
    for size in (1, 50, 100, 4096, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"^fastseed\.rollouts\.Ledger: results"):
            ledger(path)
    path.write_bytes(b"")  # as a kill before the first write leaves it
    assert count_generated(path) == 0


def test_a_file_that_is_refused_is_not_held(path):
    make_file(path)
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE rows SET sha256 = x'00' WHERE id = 1")
    with pytest.raises(ValueError, match="another SHA-256 in row 1") as caught:
        ledger(path)
    assert caught.traceback  # which keeps the ledger alive
    with contextlib.closing(sqlite3.connect(path, timeout=0)) as file:
        file.execute("BEGIN EXCLUSIVE")


def test_a_torn_log_of_a_killed_process_is_dropped(path):
    book = ledger(path)
    for unit in book.lease(4):
        book.complete(unit, f"text {unit.number}")
    log, copy = path.with_name(f"{path.name}-wal"), path.with_name("copy")
    whole, of_log = path.read_bytes(), log.read_bytes()
    book.close()
    found = []
    for size in [*range(0, len(of_log), 137), len(of_log)]:
        copy.write_bytes(whole)
        copy.with_name("copy-wal").write_bytes(of_log[:size])
        found.append(count_generated(copy))
        with contextlib.closing(ledger(copy)) as book:  # which is usable
            for unit in book.lease(9):
                book.complete(unit, "text")
            assert book.counts()["generated"] == 4
    assert found == sorted(found) and set(found) == {0, 1, 2, 3, 4}


def other_database() -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE weights (w REAL)")
        return connection.serialize() if hasattr(connection, "serialize") else b"weights"


@pytest.mark.parametrize("content", [b"{}\n", b"x" * 9999, other_database()])
def test_another_file_is_not_touched(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^fastseed\.rollouts\.Ledger: results"):
        ledger(path)
    assert path.read_bytes() == content and os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_regular_file_is_refused_at_once(path, make):
    make(path)
    with pytest.raises(ValueError, match=r"results must be a regular file, got"):
        ledger(path)


def test_the_results_of_another_job_are_refused(path):
    before = make_file(path)
    with pytest.raises(ValueError, match="\\['batch_size'\\] must be 3 as in this ledger, got 2"):
        ledger(path, batch_size=3)
    assert path.read_bytes() == before


def test_a_job_may_get_more_epochs_but_not_fewer(path):
    with contextlib.closing(ledger(path)) as book:
        unit, other = book.lease(2)
        book.complete(unit, "first")
    with contextlib.closing(ledger(path, epochs=3)) as book:
        assert book.counts()["generated"] == 1
        units = book.lease(100)
        assert len(units) == 3 and units[0].number == other.number
    with pytest.raises(ValueError, match=r"\['epochs'\] must be 1 as in this ledger .*, got 3"):
        ledger(path)


# ---------------------------------------------------------------- errors of writing


def test_a_result_that_is_no_json_is_refused_and_the_lease_holds(path):
    book = ledger(path)
    [unit] = book.lease()
    refused = ((object(), TypeError), (float("nan"), ValueError), ({1: 2, "1": 3}, ValueError))
    for result, error in refused:
        with pytest.raises(error, match="result must be plain JSON, for the file of results"):
            book.complete(unit, result)
        assert book.counts()["leased"] == 1
    assert book.complete(unit, "text")
    book.close()
    assert rows(path) == 1


@contextlib.contextmanager
def full_disk(book: Ledger):
    """Refuse more pages of the file."""
    pages = book._results._run("PRAGMA page_count")[0][0]
    book._results._run(f"PRAGMA max_page_count = {pages}")
    yield
    book._results._run("PRAGMA max_page_count = 1000000")


@contextlib.contextmanager
def failing_writes(book: Ledger):
    """Have the kernel refuse writes behind the end of the log, as a disk with an error does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = os.path.getsize(f"{book._results._path}-wal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("failure", [full_disk, failing_writes])
def test_a_write_that_fails_changes_nothing(path, failure):
    book = ledger(path)
    units = book.lease(2)
    text = "text" * 5000  # more than a page
    calls = (lambda: book.complete(units[0], text), lambda: book.drop(units[0], text))
    with failure(book):
        for call in calls:
            with pytest.raises(OSError, match=r"^fastseed\.rollouts\.Ledger: results .* SQLite"):
                call()
    assert book.counts()["leased"] == 2 and book.dropped == {}
    for unit in units:
        book.complete(unit, text)
    batch = book.next_batch()
    with failing_writes(book), pytest.raises(OSError, match="disk"):
        book.mark_trained(batch)
    assert book.version == 0 and book.next_batch() is batch
    book.mark_trained(batch)
    book.close()
    assert count_generated(path) == 2


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_that_was_deleted_or_replaced_is_noticed(path, suffix):
    book = ledger(path)
    first, second = book.lease(2)
    book.complete(first, "text")
    os.remove(f"{path}{suffix}")
    with pytest.raises(OSError, match="must be the file that was opened, got another one or none"):
        book.complete(second, "text")
    assert book.counts()["leased"] == 1
    if suffix:
        Path(f"{path}{suffix}").write_bytes(b"")
        with pytest.raises(OSError, match="must be the file that was opened"):
            book.complete(second, "text")
        book.close()
        return
    other = ledger(path)  # its file is left alone when the first one closes
    other.complete(other.lease()[0], "other text")
    book.close()
    other.complete(other.lease()[0], "other text")
    other.close()
    assert count_generated(path) == 2


def test_a_python_without_sqlite_is_an_error(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    with pytest.raises(RuntimeError, match="results needs the module sqlite3, which this Python"):
        ledger(path)


# ---------------------------------------------------------------- one user


def test_two_ledgers_on_one_file_are_an_error(path):
    book = ledger(path)
    [unit] = book.lease()
    with pytest.raises(RuntimeError, match=r"are in use by another ledger, or their file system"):
        ledger(path)
    with pytest.raises(AssertionError, match="are in use by another ledger"):
        run_python("-c", f"from fastseed.rollouts import Ledger\n{OPEN}", str(path))
    assert book.complete(unit, "text")
    book.close()
    with pytest.raises(RuntimeError, match="the file of results was closed"):
        book.drop(unit, "late")
    assert count_generated(path) == 1


OPEN = "import sys; Ledger(12, batch_size=2, lag=1, master_seed=42, results=sys.argv[1])"


def test_a_killed_trainer_leaves_the_file_free_though_its_producers_live(path):
    reader, writer = os.pipe()
    trainer = os.fork()
    if trainer == 0:
        book = ledger(path)
        book.complete(book.lease()[0], "text")
        producer = os.fork()
        if producer == 0:
            time.sleep(60)
            os._exit(0)
        os.write(writer, str(producer).encode())
        time.sleep(60)
        os._exit(1)
    producer = int(os.read(reader, 20))
    try:
        with pytest.raises(RuntimeError, match="in use by another ledger"):
            ledger(path)
        os.kill(trainer, signal.SIGKILL)
        os.waitpid(trainer, 0)
        assert count_generated(path) == 1
    finally:
        os.kill(producer, signal.SIGKILL)
        os.close(reader), os.close(writer)


FORK = """
import os, sys
from fastseed.rollouts import Ledger
book = Ledger(12, batch_size=2, lag=1, master_seed=42, results=sys.argv[1])
first, second = book.lease(2)
book.complete(first, "text")
if os.fork() == 0:
    del book  # a child that ends as Python does: the garbage collector and the end of modules
    sys.exit(0)
os.wait()
book.complete(second, "text")
print(os.path.getsize(sys.argv[1] + "-wal") > 0)
os.kill(os.getpid(), 9) if len(sys.argv) > 2 else book.close()
"""


@pytest.mark.parametrize("end", [[], ["killed"]])
def test_a_forked_child_neither_uses_nor_closes_the_file(path, end):
    with contextlib.suppress(AssertionError):  # a killed process
        assert run_python("-c", FORK, str(path), *end).strip() == "True"
    assert count_generated(path) == 2
