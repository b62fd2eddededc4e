"""Leases, batches, and refusals of the ledger."""

import pickle
import threading
import time

import pytest
import torch
from helpers.processes import in_child

from fastseed.rollouts import Batch, LeaseError, Ledger, Unit


class Clock:
    """A time that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def ledger(prompts=12, *, batch_size=2, clock=None, **options) -> Ledger:
    book = Ledger(prompts, batch_size=batch_size, master_seed=42, **options)
    book._clock = clock or book._clock
    return book


def complete_all(book: Ledger, units: list[Unit]) -> None:
    for unit in units:
        assert book.complete(unit, f"text {unit.number}")


def numbers(batch: Batch | None) -> list[int]:
    assert batch is not None
    return [unit.number for unit in batch.units]


# ---------------------------------------------------------------- order and plan


def test_units_have_the_coordinates_of_the_order():
    book = ledger(3, batch_size=1, samples=2, epochs=2, lag=5)
    units = book.lease(100)
    assert [unit[:6] for unit in units] == [
        (0, 0, 0, 0, 0, 0), (1, 0, 0, 1, 0, 0), (2, 0, 1, 0, 1, 0), (3, 0, 1, 1, 1, 0),
        (4, 0, 2, 0, 2, 0), (5, 0, 2, 1, 2, 0), (6, 1, 0, 0, 3, 0), (7, 1, 0, 1, 3, 0),
        (8, 1, 1, 0, 4, 0), (9, 1, 1, 1, 4, 0), (10, 1, 2, 0, 5, 0), (11, 1, 2, 1, 5, 0),
    ]  # fmt: skip
    assert len({unit.lease for unit in units}) == 12


def test_a_unit_is_leased_from_its_planned_version_on():
    book = ledger(lag=1)
    for version in range(6):
        units = book.lease(100)  # of the first two batches, then of one each time
        assert [unit.version for unit in units] == [version] * [4, 2, 2, 2, 2, 0][version]
        complete_all(book, units)
        book.mark_trained(book.next_batch())
    assert book.done and book.lease() == [] and book.next_batch() is None


def test_a_strict_batch_is_what_was_planned_whatever_the_order_of_completion():
    book = ledger(samples=2, lag=2)
    units = book.lease(12)
    complete_all(book, units[4:])
    assert book.next_batch() is None
    complete_all(book, units[:4][::-1])
    batch = book.next_batch()
    assert batch.number == 0 and numbers(batch) == [0, 1, 2, 3]
    assert batch.results == ["text 0", "text 1", "text 2", "text 3"]
    assert book.next_batch() is batch  # until it is marked
    book.mark_trained(batch)
    assert book.version == 1 and numbers(book.next_batch()) == [4, 5, 6, 7]


def test_a_window_takes_what_is_complete_first_and_waits_for_what_is_due():
    book = ledger(window=2, lag=1)
    units = book.lease(4)
    complete_all(book, [units[3], units[1]])
    assert numbers(book.next_batch()) == [1, 3]  # 0 and 2 are not complete
    book.mark_trained(book.next_batch())
    complete_all(book, [units[2], *book.lease(2)])
    assert book.next_batch() is None  # 0 is due: it was planned for the batch before
    complete_all(book, units[:1])
    assert numbers(book.next_batch()) == [0, 2]


def test_a_window_keeps_the_samples_of_a_prompt_together():
    book = ledger(4, batch_size=1, samples=3, window=2, lag=1)
    units = book.lease(6)
    complete_all(book, [*units[:2], *units[3:]])
    assert numbers(book.next_batch()) == [3, 4, 5]


# ---------------------------------------------------------------- leases


def test_a_lease_ends_by_time_and_the_unit_is_leased_again():
    clock = Clock()
    book = ledger(lease_seconds=10.0, clock=clock)
    [first] = book.lease()
    clock.now = 9.0
    assert [unit.number for unit in book.lease(5)] == [1]
    clock.now = 10.0
    [again] = book.lease(5)
    assert again[:6] == first[:6] and again.lease != first.lease
    assert book.counts()["expired"] == 1
    with pytest.raises(LeaseError, match="unit 0 is held by another lease, as the time"):
        book.complete(first)
    assert book.complete(again)


def test_a_lease_whose_time_is_over_holds_until_the_next_one():
    clock = Clock()
    book = ledger(lease_seconds=10.0, clock=clock)
    first, second = book.lease(2)
    clock.now = 100.0
    assert book.complete(first)
    book.renew([second])
    clock.now = 109.0
    assert book.lease(5) == []
    clock.now = 110.0
    assert [unit.number for unit in book.lease(5)] == [1]


def test_a_renewed_lease_hides_none_that_is_over():
    clock = Clock()
    book = ledger(lease_seconds=10.0, clock=clock)
    first, _ = book.lease(2)
    clock.now = 5.0
    book.renew([first])
    clock.now = 10.0
    assert [unit.number for unit in book.lease(5)] == [1]


def test_renew_refuses_all_if_one_lease_does_not_hold():
    clock = Clock()
    book = ledger(lease_seconds=10.0, clock=clock)
    first, second = book.lease(2)
    book.complete(second)
    clock.now = 5.0
    with pytest.raises(LeaseError, match=r"Ledger\.renew: unit 1 is generated already"):
        book.renew([first, second])
    clock.now = 10.0
    assert [unit.number for unit in book.lease(5)] == [0]  # the first was not renewed


def test_a_unit_is_completed_once():
    book = ledger(lag=3)
    units = book.lease(8)
    complete_all(book, units[:4])
    with pytest.raises(LeaseError, match=r"^fastseed.rollouts.Ledger.complete: unit 0 is gen"):
        book.complete(units[0], "other")
    assert book.next_batch().results == ["text 0", "text 1"]
    book.mark_trained(book.next_batch())
    with pytest.raises(LeaseError, match="unit 0 was trained or dropped already"):
        book.complete(units[0])
    with pytest.raises(LeaseError, match="unit 5 is held by another lease"):
        book.complete(units[5]._replace(lease=units[4].lease))  # by another lease
    with pytest.raises(LeaseError, match="unit 9 is open: this lease was released, or is that of"):
        book.complete(units[5]._replace(number=9))
    book.drop(units[5], "no answer")
    with pytest.raises(LeaseError, match="unit 5 was trained or dropped already"):
        book.complete(units[5])
    assert book.counts() == {
        "leased": 3, "generated": 2, "trained": 2, "dropped": 1, "expired": 0, "regenerated": 0,
    }  # fmt: skip


# ---------------------------------------------------------------- drops and staleness


def test_a_batch_lacks_what_was_dropped():
    book = ledger(samples=2, lag=1)
    units = book.lease(8)
    book.drop(units[0], "no answer")
    complete_all(book, units[1:])
    book.drop(units[2], "no advantage")  # after it was generated
    assert numbers(book.next_batch()) == [1, 3]
    book.drop(book.next_batch().units[1], "no advantage")  # and of the batch
    assert numbers(book.next_batch()) == [1]
    book.mark_trained(book.next_batch())
    assert book.dropped == {"no answer": 1, "no advantage": 2}
    for unit in units[4:]:
        book.drop(unit, "no advantage")
    assert book.next_batch() == Batch(1, [], [])
    book.mark_trained(book.next_batch())
    assert book.version == 2


def test_a_window_fills_a_batch_with_others():
    book = ledger(6, batch_size=2, window=2, lag=1)
    units = book.lease(4)
    complete_all(book, units)
    for number in (0, 1):
        book.drop(units[number], "no advantage")
    assert numbers(book.next_batch()) == [2, 3]


@pytest.mark.parametrize("on_stale", ["regenerate", "drop"])
def test_what_is_older_than_its_batch_allows_is_not_trained(on_stale):
    book = ledger(20, lag=1, on_stale=on_stale)
    for _ in range(3):
        complete_all(book, book.lease(4))
        book.mark_trained(book.next_batch())
    first, second = book.lease(2)
    assert first.version == 3 and first.batch == 4
    assert book.complete(second, version=3)
    assert not book.complete(first, version=2)  # its batch is 4
    if on_stale == "drop":
        assert book.dropped == {"stale": 1} and book.lease(9) == []
    else:
        [again] = book.lease(9)
        assert (again.number, again.version) == (first.number, 3)
        assert book.counts()["regenerated"] == 1 and book.dropped == {}
        assert book.complete(again)


@pytest.mark.parametrize("on_stale", ["regenerate", "drop"])
def test_what_becomes_too_old_in_the_window_is_not_trained(on_stale):
    book = ledger(batch_size=1, window=2, lag=1, max_staleness=1, on_stale=on_stale)
    for _ in range(2):
        complete_all(book, book.lease(1))
        book.mark_trained(book.next_batch())
    second, third = book.lease(5)
    assert (second.batch, second.version, third.version) == (2, 1, 2)
    complete_all(book, [third, second])
    assert numbers(book.next_batch()) == [3]
    book.mark_trained(book.next_batch())
    counts = book.counts()
    if on_stale == "drop":
        assert counts["dropped"] == 1 and counts["regenerated"] == 0
        return
    assert counts["regenerated"] == 1 and book.next_batch() is None
    assert book.state_dict()["versions"] == [[2, 3]]  # not as planned
    book.load_state_dict(book.state_dict())
    again = book.lease(1)[0]
    assert (again.number, again.version) == (2, 3)
    complete_all(book, [again])
    assert numbers(book.next_batch()) == [2]


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"samples": 2**20 + 1}, "samples must be in [1, 1048576], got 1048577"),
        ({"window": 3, "lag": 1}, "window must be in [1, 2], got 3"),
        ({"max_staleness": 2, "lag": 1}, "max_staleness must be in [1, 1], got 2"),
    ],
)
def test_arguments_are_checked(options, text):
    arguments = {"prompts": 4, "batch_size": 2, "master_seed": 1, **options}
    with pytest.raises((TypeError, ValueError)) as caught:
        Ledger(**arguments)
    assert text in str(caught.value) and str(caught.value).startswith("fastseed.rollouts.")


def test_methods_check_their_arguments():
    book = ledger()
    [unit] = book.lease()
    freed = torch.zeros(9)
    freed.untyped_storage().resize_(0)  # nothing may print it
    refused = [
        (TypeError, "complete: unit must be a fastseed.rollouts.Unit", lambda: book.complete(1)),
        (ValueError, "lease: timeout must be in [0, 1", lambda: book.lease(timeout=-1)),
        (TypeError, "renew: units must be a list of what lease", lambda: book.renew(freed)),
        (
            TypeError,
            "unit.lease must be an integer",
            lambda: book.drop(unit._replace(lease=[]), "x"),
        ),
        (ValueError, "version must be in [0, 0], got 1", lambda: book.complete(unit, version=1)),
        (TypeError, "batch must be a Batch, got None", lambda: book.mark_trained(None)),
        (
            ValueError,
            "mark_trained: batch must be what next_batch returned last, got 'batch 0'",
            lambda: book.mark_trained(Batch(0, [unit], [None])),
        ),
        (
            TypeError,
            "batch.number must be an integer, got tensor of shape",
            lambda: book.mark_trained(Batch(freed, [unit], [None])),
        ),
    ]
    for error, text, call in refused:
        with pytest.raises(error) as caught:
            call()
        assert text in str(caught.value)
    assert book.counts()["leased"] == 1 and book.complete(unit)


def test_a_batch_that_changed_since_is_not_marked():
    book = ledger()
    complete_all(book, book.lease(2))
    batch = book.next_batch()
    book.drop(batch.units[0], "no advantage")
    with pytest.raises(ValueError, match="batch must be what next_batch returned last"):
        book.mark_trained(batch)
    book.mark_trained(book.next_batch())


def test_a_producer_waits_for_a_unit():
    book = ledger(2, batch_size=1, lease_seconds=0.1)
    [unit] = book.lease(timeout=60)
    for seconds in (0, 0.03):  # the other lease holds
        begin = time.monotonic()
        assert book.lease(timeout=seconds) == [] and time.monotonic() - begin >= seconds
    [again] = book.lease(timeout=60)
    assert again.number == unit.number and again.lease != unit.lease
    calls = [lambda: book.release(again), lambda: book.mark_trained(book.next_batch())]
    for call in calls:
        thread = threading.Timer(0.01, call)
        thread.start()
        [again] = book.lease(timeout=60)
        thread.join()
        book.complete(again)
    assert again.number == 1
    book.mark_trained(book.next_batch())
    begin = time.monotonic()
    assert book.done and book.lease(timeout=9) == [] and time.monotonic() - begin < 9


def test_threads_share_a_ledger():
    book, prompts = Ledger(600, batch_size=3, samples=2, lag=3, window=2, master_seed=1), 600
    done: list[int] = []

    def produce() -> None:
        while not book.done:
            for unit in book.lease(3):
                book.complete(unit, unit.number)

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    while not book.done:
        if (batch := book.next_batch()) is not None:
            done.extend(batch.results)
            book.mark_trained(batch)
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(2 * prompts))


def test_a_ledger_stays_in_its_process():
    book = ledger()
    [unit] = book.lease()
    assert pickle.loads(pickle.dumps(unit)) == unit
    with pytest.raises(TypeError, match="a ledger stays in the process that made it"):
        pickle.dumps(book)

    def refused():  # a copy of the ledger: its leases would be given twice
        for call in (book.lease, book.counts, book.close, lambda: book.version, lambda: book.done):
            with pytest.raises(RuntimeError, match="stays in the process"):
                call()

    in_child(refused)
