"""The file of results: what survives a restart, and what is deleted."""

import contextlib
import gc
import json
from pathlib import Path

import pytest
from helpers.ledger_files import count_generated, ledger, rows

from fastseed.rollouts import LeaseError, Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rollouts.results"


def train_alone(book: Ledger, batches: int) -> None:
    """Complete units one by one, and train each as a batch."""
    for _ in range(batches):
        book.complete(book.lease()[0], "text")
        book.mark_trained(book.next_batch())


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
    first, third = again.lease(9)
    assert (first.number, third.number) == (0, 2)
    assert again.dropped == {"no answer": 1} and again.counts()["generated"] == 1
    again.complete(first, 0.1 + 0.2)
    assert again.next_batch().results == [0.1 + 0.2, {"tokens": [1, 2]}]
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


def test_a_result_that_became_too_old_does_not_return(path):
    options = {"batch_size": 1, "window": 2, "max_staleness": 1}
    book = ledger(path, **options)
    train_alone(book, 2)
    for unit in book.lease(2)[::-1]:  # 3 before 2, which is too old after it
        book.complete(unit, f"text {unit.number} by policy {unit.version}")
    book.mark_trained(book.next_batch())
    assert book.counts()["regenerated"] == 1
    state = book.state_dict()
    book.close()
    again = ledger(path, **options)
    again.load_state_dict(state)
    assert again.next_batch() is None
    assert [unit[:6] for unit in again.lease()] == [(2, 0, 2, 0, 2, 3)]
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
    count = rows(path)
    assert train(ledger(path, **options), 1) == first  # units complete in another order
    assert rows(path) == count
    path.unlink()
    assert train(ledger(path, **options), 1) != first


@pytest.mark.parametrize(("late", "batches"), [(False, [[0], [1], [3]]), (True, [[0], [1]])])
def test_stale_drops_are_the_same_after_a_restart(path, late, batches):
    options = {"batch_size": 1, "window": 2, "max_staleness": 1, "on_stale": "drop"}
    book = ledger(path, **options)
    state = book.state_dict()
    train_alone(book, 2)
    if late:
        assert not book.complete(book.lease()[0], "text", version=0)
    else:
        for unit in book.lease(2)[::-1]:  # 3 before 2, which is too old after it
            book.complete(unit, "text")
        book.mark_trained(book.next_batch())
        assert book.dropped == {"stale": 1} and book.state_dict()["holes"] == []
    book.close()
    again = ledger(path, **options)
    again.load_state_dict(state)
    found = []
    while again.version < len(batches):
        for unit in again.lease(1 if late else 9):
            again.complete(unit, "text")
        batch = again.next_batch()
        found.append([unit.number for unit in batch.units])
        again.mark_trained(batch)
    assert found == batches and again.dropped == {"stale": 1}
    assert not late or [unit.number for unit in again.lease()] == [3]
    again.close()


def test_a_drop_of_a_batch_that_is_trained_again_survives_too(path):
    options = {"batch_size": 1, "window": 2, "max_staleness": 1, "on_stale": "drop"}
    with contextlib.closing(ledger(path, **options)) as book:
        train_alone(book, 2)
    with contextlib.closing(ledger(path, **options)) as book:
        book.mark_trained(book.next_batch())
        book.complete(book.lease()[0], "too old after the next batch", version=0)
        book.mark_trained(book.next_batch())
    with contextlib.closing(ledger(path, **options)) as book:
        book.mark_trained(book.next_batch())
        assert book.lease() == [] and book.dropped == {"stale": 1}


def test_rows_that_the_loaded_state_includes_are_deleted(path):
    book = ledger(path)
    for _ in range(3):
        for unit in book.lease(9):
            book.complete(unit, f"text {unit.number}")
        book.mark_trained(book.next_batch())
    state = book.state_dict()  # 6 are trained, 2 generated
    book.close()
    assert rows(path) == 11  # 8 results and 3 batches
    again = ledger(path)
    again.load_state_dict(state)
    assert again.counts()["generated"] == 2
    again.close()
    assert 2 <= rows(path) <= 4 and count_generated(path) == 0


def test_what_a_saved_state_includes_is_forgotten_and_all_else_goes_on(path):
    book = ledger(path)
    old = book.state_dict()
    units = book.lease(4)
    taken = book.complete_many([(unit, (unit.number,)) for unit in units[1:]])
    assert taken == [True] * 3 and rows(path, book) == 1  # one write
    assert book.complete(units[0], [0])
    book.mark_trained(book.next_batch())
    held, state = book.lease(9), book.state_dict()
    with pytest.raises(ValueError, match=r"forget: state must be as state_dict returned it"):
        book.forget({**state, "frontier": 0})
    book.forget(old)
    assert rows(path, book) == 3
    book.forget(state)  # row 1 has two results that the state has not
    assert rows(path, book) == 3
    book.mark_trained(book.next_batch())
    later = book.state_dict()
    book.forget(later)
    assert rows(path, book) == 0
    assert book.complete_many([(unit, None) for unit in held]) == [True] * 2
    book.close()
    again = ledger(path)
    with pytest.raises(ValueError, match=r"forget: state\['batches'\] must be at most the 0 of"):
        again.forget(later)
    again.load_state_dict(later)
    assert again.next_batch() is None and [unit.number for unit in again.lease(9)] == [4, 5, 6, 7]
    again.close()


def test_many_results_are_taken_together_or_not_at_all(path):
    book = ledger(path, batch_size=1, on_stale="drop")
    first, second = book.lease(2)
    book.release(second)
    refused = [
        ([(first, 1), (second, 2)], LeaseError, "unit 1 is open"),
        ([(first, 1), (first, 2)], ValueError, "results must be pairs with different units, got"),
        ([first], TypeError, r"results\[0\] must be a unit and its result, got"),
        (first.number, TypeError, "results must be a list of pairs of a unit and its result"),
        ([(first, object())], TypeError, "result must be plain JSON"),
    ]
    for pairs, error, text in refused:
        with pytest.raises(error, match=text):
            book.complete_many(pairs)
    assert book.counts()["leased"] == 1 and rows(path, book) == 0 and not book.complete_many([])
    book.complete(first)
    book.mark_trained(book.next_batch())
    state, units = book.state_dict(), book.lease(2)
    answers = book.complete_many([(unit, (unit.number,)) for unit in units], version=0)
    assert answers == [True, False]  # the second one is of the next batch, and dropped
    for _ in range(2):
        assert book.lease(9) == [] and book.dropped == {"stale": 1}
        assert book.next_batch().results == [[1]]
        book.load_state_dict(state)
    book.close()


@pytest.mark.usefixtures("frozen_objects")
def test_a_closed_ledger_leaves_no_objects(path):
    def count():
        with contextlib.closing(ledger(path)) as book:
            book.lease()
        gc.collect()
        return len(gc.get_objects())

    count(), count()
    before = count()
    assert [count() for _ in range(3)][-1] - before < 10
