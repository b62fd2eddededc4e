"""The state of a ledger: what it resumes, what is refused, and its size."""

from __future__ import annotations

import io
import json
import random

import pytest
import torch

from fastseed.rollouts import Ledger
from fastseed.rollouts.units import read_ranges, write_ranges


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
    for _ in range(1):
        book.mark_trained(book.next_batch())
    book.drop(units[20], "no answer")
    return book


def test_a_state_issues_what_is_open_and_nothing_else():
    book = used()
    state = book.state_dict()
    assert (state["batches"], state["trained"], state["dropped"]) == (1, 8, {"no answer": 1})
    assert state["frontier"] == 22 and state["holes"] == "0-5 14-19 21"
    for stored in (json.loads(json.dumps(state)), through_torch(state)):
        other = ledger()
        other.load_state_dict(stored)
        assert other.state_dict() == state and other.version == 1
        issued = [unit.number for unit in other.lease(1000)]
        assert issued == [*range(6), *range(14, 20), 21, *range(22, 40)]


def through_torch(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_a_loaded_state_ends_all_leases():
    book = ledger()
    [unit] = book.lease()
    book.load_state_dict(ledger().state_dict())
    with pytest.raises(RuntimeError, match="unit 0 is not leased"):
        book.complete(unit)
    [again] = book.lease()
    assert again[:6] == unit[:6] and again.lease != unit.lease


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"prompts": 41}, "state['prompts'] must be 40 as in this ledger, got 41"),
        ({"samples": 3}, "state['samples'] must be 2 as in this ledger, got 3"),
        ({"batch_size": 5}, "state['batch_size'] must be 4 as in this ledger, got 5"),
        ({"master_seed": 43}, "state['master_seed'] must be 42 as in this ledger, got 43"),
        ({"format_version": 2}, "state['format_version'] must be 1 as in this ledger, got 2"),
        ({"format": "x"}, "state['format'] must be 'fastseed.rollouts.Ledger' as in this"),
        ({"batches": 11}, "state['batches'] must be in [0, 10], got 11"),
        ({"batches": 9}, "state must be whole, as state_dict returned it"),
        ({"trained": 9}, "state must be whole"),
        ({"frontier": 24}, "state must be whole"),
        ({"frontier": 23}, "state must be whole"),
        ({"frontier": -1}, "state['frontier'] must be in [0, 80], got -1"),
        ({"holes": "0-5 14-19 20-21"}, "state must be whole"),
        ({"holes": "5-0"}, "state['holes'] must be increasing ranges below 22, such as"),
        ({"holes": "0-5 4"}, "state['holes'] must be increasing ranges below 22"),
        ({"holes": "0-99999999999999999"}, "state['holes'] must be increasing ranges below"),
        ({"holes": "0-5 14-19 22"}, "state['holes'] must be increasing ranges below 22"),
        ({"holes": [0]}, "state['holes'] must be increasing ranges below 22"),
        ({"versions": "7:0"}, "state['versions'] must be of open units, with versions up to 1"),
        ({"versions": "0:2"}, "state['versions'] must be of open units, with versions up to 1"),
        ({"versions": "0"}, "state['versions'] must be units with versions, such as"),
        ({"dropped": {"no answer": 2}}, "state must be whole"),
        ({"dropped": {"": 1}}, "a reason of state['dropped'] must be a non-empty string"),
        ({"dropped": {"no answer": -1}}, "state['dropped']['no answer'] must be in [1, 22]"),
        ({"dropped": 3}, "state['dropped'] must be a dict, got 3"),
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


def test_a_state_without_an_entry_is_refused():
    state = used().state_dict()
    for name in state:
        with pytest.raises(ValueError, match=f"state must be with an entry '{name}'"):
            ledger().load_state_dict({k: v for k, v in state.items() if k != name})
    with pytest.raises(TypeError, match="state must be a dict, got None"):
        ledger().load_state_dict(None)


def test_ranges_are_read_as_they_were_written():
    for seed in range(200):
        chosen = sorted(random.Random(seed).sample(range(60), seed % 50))
        assert read_ranges("f", "x", write_ranges(chosen), 60) == chosen
    assert write_ranges([3, 4, 5, 9]) == "3-5 9" and write_ranges([]) == ""


def test_a_state_of_ten_million_units_with_a_thousand_holes_is_small():
    prompts = 10_000_000
    book = Ledger(prompts, batch_size=prompts // 2, lag=1, window=2, master_seed=1)
    state = book.state_dict()
    holes = sorted(random.Random(1).sample(range(prompts), 1000))
    trained = {"trained": prompts // 2 - 1000, "batches": 1, "frontier": prompts}
    dropped = {"dropped": {"old": prompts // 2}}
    state = {**state, **trained, **dropped, "holes": write_ranges(holes)}
    book.load_state_dict(state)
    assert len(json.dumps(state)) < 2**14 and book.state_dict() == state
    assert [unit.number for unit in book.lease(2000)] == holes
