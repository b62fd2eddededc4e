"""The journal: what survives, which damage is an error, and who may write."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from fastseed.rollouts import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rollouts.journal"


def ledger(path: Path, prompts=12, *, batch_size=2, **options) -> Ledger:
    options = {"lag": 1, "master_seed": 42, **options}
    return Ledger(prompts, batch_size=batch_size, journal=path, **options)


def test_results_that_were_not_trained_are_there_after_a_restart(path):
    book = ledger(path)
    state = book.state_dict()
    units = book.lease(4)
    book.complete(units[1], {"tokens": (1, 2)})
    book.complete(units[2])  # no result: nothing to keep
    book.drop(units[3], "no answer")
    book.close()
    again = ledger(path)
    again.load_state_dict(json.loads(json.dumps(state)))
    assert [unit.number for unit in again.lease(9)] == [0, 2]
    assert again.dropped == {"no answer": 1} and again.counts()["generated"] == 1
    again.close()


def test_results_are_the_same_before_and_after_a_restart(path):
    book = ledger(path, prompts=1, batch_size=1)
    book.complete(book.lease()[0], {"tokens": (1, 2), "p": 0.1 + 0.2})
    before = book.next_batch().results
    book.close()
    again = ledger(path, prompts=1, batch_size=1)
    assert before == again.next_batch().results == [{"tokens": [1, 2], "p": 0.1 + 0.2}]
    again.close()


def test_results_of_a_policy_after_the_checkpoint_are_generated_again(path):
    book = ledger(path)
    state = book.state_dict()
    for unit in book.lease(9):
        book.complete(unit, "text")
    book.mark_trained(book.next_batch())
    for unit in book.lease(9):
        assert unit.version == 1
        book.complete(unit, "text")
    book.close()
    again = ledger(path)
    again.load_state_dict(state)
    assert again.counts()["generated"] == 4 and again.lease(9) == []
    again.mark_trained(again.next_batch())
    assert [unit.number for unit in again.lease(9)] == [4, 5]
    again.close()


def test_a_replay_has_the_same_batches(path):
    def train(book: Ledger, order: int) -> list[list[int]]:
        found = []
        while not book.done:
            for unit in book.lease(99)[::order]:
                book.complete(unit, None)
            batch = book.next_batch()
            found.append([unit.number for unit in batch.units])
            book.mark_trained(batch)
        book.close()
        return found

    options = {"window": 2, "lag": 2}
    first = train(ledger(path, **options), -1)
    size = path.stat().st_size
    assert train(ledger(path, **options), 1) == first  # units complete in another order
    assert path.stat().st_size == size
    path.unlink()
    assert train(ledger(path, **options), 1) != first


def test_stale_drops_are_the_same_after_a_restart(path):
    options = {"batch_size": 1, "window": 2, "max_staleness": 1, "on_stale": "drop"}
    book = ledger(path, **options)
    state = book.state_dict()
    for _ in range(2):
        book.complete(book.lease()[0], "text")
        book.mark_trained(book.next_batch())
    for unit in book.lease(2)[::-1]:  # 3 before 2, which is too old after it
        book.complete(unit, "text")
    book.mark_trained(book.next_batch())
    assert book.dropped == {"stale": 1} and book.state_dict()["holes"] == ""
    book.close()
    again = ledger(path, **options)
    again.load_state_dict(state)
    batches = []
    while again.version < 3:
        for unit in again.lease(9):
            again.complete(unit, "text")
        batch = again.next_batch()
        batches.append([unit.number for unit in batch.units])
        again.mark_trained(batch)
    assert batches == [[0], [1], [3]] and again.dropped == {"stale": 1}
    again.close()


# ---------------------------------------------------------------- damage


def some_journal(path: Path) -> bytes:
    book = ledger(path)
    for unit in book.lease(4):
        book.complete(unit, f"text {unit.number}")
    book.close()
    return path.read_bytes()


def test_a_torn_last_line_is_dropped_at_every_byte(path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    whole = some_journal(path)
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        book = ledger(path)
        lines = sum(end <= size for end in ends)
        assert book.counts()["generated"] == max(0, lines - 1), size
        assert path.stat().st_size == max([ends[0], *(end for end in ends if end <= size)])
        for unit in book.lease(9):
            book.complete(unit, f"text {unit.number}")
        book.close()
        if size % 20 == 0:
            assert ledger_generated(path) == 4


def ledger_generated(path: Path) -> int:
    book = ledger(path)
    found = book.counts()["generated"]
    book.close()
    return found


def test_a_tail_of_zeros_is_dropped(path):
    """Some file systems leave one when the machine goes down."""
    whole = some_journal(path)
    path.write_bytes(whole + bytes(100))
    assert ledger_generated(path) == 4 and path.read_bytes() == whole


def test_every_flipped_byte_is_an_error_and_the_file_is_left_alone(path):
    whole = some_journal(path)
    last = whole.rindex(b"\n", 0, -1) + 1
    for position in [*range(0, last, 7), last + 3, len(whole) - 3]:
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"journal .* must be undamaged, got another SHA-256"):
            ledger(path)
        assert path.read_bytes() == damaged


def test_a_missing_or_repeated_line_is_an_error(path):
    lines = some_journal(path).splitlines(keepends=True)
    for changed in (lines[:2] + lines[3:], [*lines[:3], lines[2], *lines[3:]], lines[1:]):
        path.write_bytes(b"".join(changed))
        with pytest.raises(ValueError, match="must be undamaged"):
            ledger(path)


@pytest.mark.parametrize("content", [b"weights", b"{}\n", bytes(100)])
def test_another_file_is_not_touched(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^fastseed\.rollouts\.Ledger: journal"):
        ledger(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"prompts": 13}, "must be that of a ledger with prompts 13, got 12"),
        ({"master_seed": 43}, "must be that of a ledger with master_seed 43, got 42"),
        ({"batch_size": 3}, "must be that of a ledger with batch_size 3, got 2"),
    ],
)
def test_the_journal_of_another_job_is_refused(path, options, text):
    before = some_journal(path)
    with pytest.raises(ValueError, match=text):
        ledger(path, **options)
    assert path.read_bytes() == before


# ---------------------------------------------------------------- errors of writing


def test_a_result_that_is_no_json_is_refused_and_the_lease_holds(path):
    book = ledger(path)
    [unit] = book.lease()
    before = path.read_bytes()
    for result, error in (
        (object(), TypeError),
        (float("nan"), ValueError),
        ({1: 2, "1": 3}, ValueError),
    ):
        with pytest.raises(error, match="result must be plain JSON, for the journal"):
            book.complete(unit, result)
        assert path.read_bytes() == before and book.counts()["leased"] == 1
    assert book.complete(unit, "text")
    book.close()


def test_a_full_disk_changes_nothing(path, monkeypatch):
    book = ledger(path)
    units = book.lease(2)
    before = path.read_bytes()

    def fail(file):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        for call in (lambda: book.complete(units[0], "text"), lambda: book.drop(units[0], "x")):
            with pytest.raises(OSError, match="No space left"):
                call()
    assert path.read_bytes() == before
    assert book.counts()["leased"] == 2 and book.dropped == {}
    for unit in units:
        book.complete(unit, "text")
    batch = book.next_batch()
    assert batch is not None
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            book.mark_trained(batch)
    assert book.version == 0 and book.next_batch() is batch
    book.mark_trained(batch)
    book.close()
    assert ledger_generated(path) == 2


# ---------------------------------------------------------------- one writer


def test_two_ledgers_on_one_journal_are_an_error(path):
    book = ledger(path)
    [unit] = book.lease()
    with pytest.raises(RuntimeError, match=r"journal .* is in use by another ledger; stop that"):
        ledger(path)
    assert book.complete(unit, "text")
    book.close()
    with pytest.raises(RuntimeError, match="the journal was closed"):
        book.drop(unit, "late")
    assert ledger_generated(path) == 1


def test_a_killed_trainer_leaves_the_journal_free_though_its_producers_live(path):
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
        assert ledger_generated(path) == 1
    finally:
        os.kill(producer, signal.SIGKILL)
        os.close(reader), os.close(writer)
