"""The state of a ledger: what it resumes, what is refused, and its size."""

import itertools
import json
import random

import pytest
from helpers.support import saved_and_loaded

from fastseed.rollouts import Ledger, ledger_state


def ledger(prompts=40, *, batch_size=4, samples=2, master_seed=42, **options) -> Ledger:
    options = {"window": 2, "lag": 3, **options}
    return Ledger(
        prompts, batch_size=batch_size, samples=samples, master_seed=master_seed, **options
    )


def used(**options) -> Ledger:
    """A ledger with holes, a dropped unit and two batches that were trained."""
    book = ledger(**options)
    units = book.lease(64)
    for unit in units[5:]:
        book.complete(unit, unit.number)
    book.mark_trained(book.next_batch())
    book.drop(units[20], "no answer")
    return book


def test_a_state_issues_what_is_open_and_nothing_else():
    book = used()
    state = book.state_dict()
    assert (state["batches"], state["dropped"]) == (1, [["no answer", 1]])
    assert state["frontier"] == 22 and state["holes"] == [*range(6), *range(14, 20), 21]
    for stored in (json.loads(json.dumps(state)), saved_and_loaded(state)):
        other = ledger()
        other.load_state_dict(stored)
        assert other.state_dict() == state and other.version == 1
        issued = [unit.number for unit in other.lease(1000)]
        assert issued == [*range(6), *range(14, 20), 21, *range(22, 40)]


def test_a_loaded_state_ends_all_leases():
    book = ledger()
    [unit] = book.lease()
    book.load_state_dict(ledger().state_dict())
    with pytest.raises(RuntimeError, match="unit 0 is open: this lease was released"):
        book.complete(unit)
    [again] = book.lease()
    assert again[:6] == unit[:6] and again.lease != unit.lease


def train(book):
    """Train all batches; the units of each."""
    found = []
    while not book.done:
        for unit in book.lease(8):
            book.complete(unit, unit.number)
        if (batch := book.next_batch()) is not None:
            book.mark_trained(batch)
            found.append([unit.number for unit in batch.units])
    return found


@pytest.mark.parametrize("batches", [1, 9, 10])
def test_a_job_may_get_more_epochs(batches):
    whole, book = train(ledger(epochs=2)), ledger()
    assert len(whole) == 20 and [*range(160)] == sorted(itertools.chain(*whole))
    while book.version < batches:
        for unit in book.lease(8):
            book.complete(unit, unit.number)
        if (batch := book.next_batch()) is not None:
            assert [unit.number for unit in batch.units] == whole[book.version]
            book.mark_trained(batch)
    longer = ledger(epochs=2)
    longer.load_state_dict(book.state_dict())
    assert train(longer) == whole[batches:]
    with pytest.raises(ValueError, match=r"state\['epochs'\] must be 1 as .* \(or fewer, where"):
        ledger().load_state_dict(longer.state_dict())
    with pytest.raises(ValueError, match=r"state\['epochs'\] must be 2 as .*, got 1"):
        ledger(41, epochs=2).load_state_dict(ledger(41).state_dict())  # its last batch is smaller


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"prompts": 41}, "state['prompts'] must be 40 as in this ledger, got 41"),
        ({"format": "x"}, "state['format'] must be 'fastseed.rollouts.Ledger' as in this"),
        ({"sha256": None}, "state must be as state_dict returned it, got 'one with another SHA"),
    ],
)
def test_another_or_a_damaged_state_is_refused_and_nothing_changes(change, text):
    state = used().state_dict()
    book = used()
    before = book.state_dict(), book.counts()
    with pytest.raises((TypeError, ValueError)) as caught:
        book.load_state_dict({**state, **change})
    assert str(caught.value).startswith("fastseed.rollouts.Ledger.load_state_dict: ")
    assert text in str(caught.value)
    assert (book.state_dict(), book.counts()) == before
    book.load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        {"batches": 2}, {"frontier": 21}, {"holes": [0]}, {"holes": [object()]}, {"holes": None},
        {"dropped": [["no answer", 2]]}, {"sha256": "0" * 64},
    ],
)  # fmt: skip
def test_an_edited_state_is_refused(change):
    with pytest.raises(ValueError, match="state must be as state_dict returned it"):
        ledger().load_state_dict({**used().state_dict(), **change})


def test_a_state_of_ten_million_units_with_a_thousand_holes_is_small():
    book = Ledger(10**7, batch_size=5 * 10**6, lag=1, window=2, master_seed=1)
    holes = sorted(random.Random(1).sample(range(10**7), 1000))
    held = ledger_state.State(1, 10**7, holes, dropped={"old": 10**6})
    state = ledger_state.write(book._plan, held)
    assert len(json.dumps(state)) < 2**14
    book.load_state_dict(state)
    assert book.state_dict() == state
    assert [unit.number for unit in book.lease(2000)] == holes
