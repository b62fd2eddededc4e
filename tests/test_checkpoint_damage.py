"""What load_state_dict refuses, and that a refusal leaves every generator as it was."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import torch
from jobs import draws, everything, start

import fastseed


@pytest.fixture
def job():
    return start()


def refused(job, state, error, says):
    before = everything(job)
    with pytest.raises(error) as caught:
        fastseed.load_state_dict(state)
    assert str(caught.value).startswith("fastseed.load_state_dict: "), str(caught.value)
    assert says in str(caught.value), str(caught.value)
    assert everything(job) == before


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"format": "other"}, ValueError, "state['format'] must be 'fastseed', got 'other'"),
        ({"version": 2}, ValueError, "state['version'] must be 1, got 2"),
        ({"version": None}, ValueError, "state['version'] must be 1, got None"),
        ({"derivation": 2}, ValueError, "state['derivation'] must be 1, got 2"),
        ({"scheme": "fwr13y"}, ValueError, "state['scheme'] must be 'philox-v1', got 'fwr13y'"),
        ({"master_seed": -1}, ValueError, "state['master_seed'] must be in [0, "),
        ({"master_seed": 2**64}, ValueError, "state['master_seed'] must be in [0, "),
        ({"master_seed": "42"}, TypeError, "state['master_seed'] must be an integer, got '42'"),
        ({"master_seed": 42.0}, TypeError, "state['master_seed'] must be an integer, got 42.0"),
        ({"reseeded": 2}, ValueError, "state['reseeded'] must be in [0, 1], got 2"),
        ({"version": True}, ValueError, "state['version'] must be 1, got True"),
        ({"world_size": 0}, ValueError, "state['world_size'] must be in [1, 16777215], got 0"),
        ({"task": 2**24}, ValueError, "state['task'] must be in [0, 16777215]"),
        ({"epoch": True}, TypeError, "state['epoch'] must be an integer, got True"),
        ({"step": -1}, ValueError, "state['step'] must be in [0, "),
        ({"extra": 1}, ValueError, "state must hold nothing but what state_dict() wrote"),
        ({5: 1}, ValueError, "state must hold nothing but what state_dict() wrote"),
    ],
)
def test_wrong_fields_are_refused(job, change, error, says):
    refused(job, {**fastseed.state_dict(rng=True), **change}, error, says)


@pytest.mark.parametrize("field", ["format", "version", "derivation", "scheme", "master_seed"])
def test_missing_fields_are_refused(job, field):
    state = fastseed.state_dict(rng=True)
    del state[field]
    refused(job, state, ValueError, field)


def test_half_a_scope_is_refused(job):
    state = fastseed.state_dict()
    del state["epoch"]
    refused(job, state, ValueError, "state must hold epoch")


@pytest.mark.parametrize("state", [None, [], "state", {}, {"epoch": 3, "model": {}}])
def test_foreign_objects_are_refused(job, state):
    refused(job, state, (TypeError, ValueError), "state")


@pytest.mark.parametrize("name", ["python", "numpy", "torch.cpu"])
def test_an_exact_state_without_a_global_generator_is_refused(job, name):
    state = fastseed.state_dict(rng=True)
    del state[f"rng.3.{name}"]
    refused(job, state, ValueError, "state must hold exact states of all of")


def test_states_of_absent_accelerators_are_refused(job):
    state = {
        **fastseed.state_dict(rng=True),
        "rng.3.torch.cuda": torch.zeros(16, dtype=torch.uint8),
    }
    refused(job, state, ValueError, "needs its accelerator to be initialised first")


def test_a_legacy_state_with_a_step_moves_nothing():
    fastseed.init(42, 1, 0, scheme="fwr13y")
    fastseed.reseed(1, 2)
    state = {**fastseed.state_dict(), "step": 3, "master_seed": 99}
    with pytest.raises(ValueError, match="step must be 0"):
        fastseed.load_state_dict(state)
    seeder = fastseed.api._seeder
    assert (seeder.master_seed, tuple(seeder.scope)) == (42, (1, 2, 0))


def test_states_of_unregistered_generators_are_refused(job):
    state = fastseed.state_dict(rng=True)
    fastseed.unregister_generator(job["new"])
    refused(job, state, ValueError, "state['rng.3.new'] belongs to a generator that must be regist")


NAMES = ["python", "numpy", "torch.cpu", "new", "old", "own", "one", "pool"]


def damage(state, name):
    """Every way to damage the exact state of one generator."""
    field = f"rng.3.{name}"
    whole = state[field]
    for value in (None, 3, "x", whole.tolist(), whole.long(), whole.view(torch.int8), whole[None]):
        yield {field: value}
    for cut in (whole[:-1], whole[:0], whole[1:], torch.cat([whole, whole[:1]])):
        yield {field: cut}
    for other in NAMES:
        if other != name and other not in {"numpy": "old", "old": "numpy"}.get(name, ""):
            foreign = state[f"rng.3.{other}"]
            if foreign.shape != whole.shape:
                yield {field: foreign}
    yield {field: torch.full_like(whole, 255)}
    yield {field: torch.zeros_like(whole)}


@pytest.mark.parametrize("name", NAMES)
def test_damaged_states_are_refused_and_change_nothing(job, name):
    state = fastseed.state_dict(rng=True)
    draws(job)
    for change in damage(state, name):
        says = f"state['rng.3.{name}']"
        refused(job, {**state, **change}, (ValueError, TypeError), says)


def words_at(name, state):
    """A copy of a state, and its 624 words as an array that writes into the copy."""
    data = state[f"rng.3.{name}"].clone()
    array = data.numpy()
    if name in ("python", "own"):
        return data, array[: 4 * 624].view(np.uint32)
    member = 5056 if name == "pool" else 0
    return data, array[member + 24 : member + 24 + 8 * 624].view(np.uint64)


@pytest.mark.parametrize("name", ["python", "own", "torch.cpu", "one", "pool"])
def test_all_zero_words_are_refused(job, name):
    """They would draw zeros for ever. Only the top bit of word 0 belongs to the state."""
    state = fastseed.state_dict(rng=True)
    draws(job)
    data, words = words_at(name, state)
    for first in (0, 1, 0x7FFFFFFF):
        words[:] = 0
        words[0] = first
        refused(job, {**state, f"rng.3.{name}": data}, ValueError, "must not be all zero")
    words[0] = 0x80000000
    fastseed.load_state_dict({**state, f"rng.3.{name}": data})


@pytest.mark.parametrize(
    "head",
    [
        (0, 1, 0),  # left: nothing, which torch would count down from
        (625, 1, 0),
        (624, 1, 624),  # the position runs past the words before the next block is made
        (2, 1, 624),
        (1, 0, 0),  # never seeded
        (1, 1, 625),
        (1, 1, 2**40),
    ],
)
@pytest.mark.parametrize("name", ["torch.cpu", "pool"])
def test_impossible_positions_of_torch_are_refused(job, name, head):
    state = fastseed.state_dict(rng=True)
    data = state[f"rng.3.{name}"].clone()
    at = 5056 + 8 if name == "pool" else 8
    packed = torch.frombuffer(bytearray(struct.pack("=iiQ", *head)), dtype=torch.uint8)
    data[at : at + 16] = packed
    refused(job, {**state, f"rng.3.{name}": data}, ValueError, f"state['rng.3.{name}']")


NUMPY_NAME = 16  # bytes of the bit generator's name, before the MT19937's words


def change_bytes(state, name, at, kind, *values):
    """A NumPy state with values written over it at an offset."""
    data = bytearray(state[f"rng.3.{name}"].tolist())
    struct.pack_into(f"<{kind}", data, at, *values)
    return {**state, f"rng.3.{name}": torch.frombuffer(data, dtype=torch.uint8)}


POSITION = NUMPY_NAME + 4 * 624


@pytest.mark.parametrize(
    ("at", "kind", "values", "says"),
    [
        (0, "16s", [b"PCG64"], "its bit generator must be MT19937"),
        (0, "16s", [b""], "its bit generator must be MT19937"),
        (0, "16s", [b"MT19937x"], "its bit generator must be MT19937"),
        (POSITION, "i", [-1], "position must be in [0, 624], got -1"),
        (POSITION, "i", [625], "position must be in [0, 624], got 625"),
        (POSITION, "i", [2**31 - 1], "position must be in [0, 624], got 2147483647"),
        (POSITION + 4, "i", [2], "has_gauss must be 0 or 1, got 2"),
        (POSITION + 4, "i", [-1], "has_gauss must be 0 or 1, got -1"),
        (NUMPY_NAME, "624I", [0] * 624, "must not be all zero"),
        (NUMPY_NAME, "624I", [1] + [0] * 623, "must not be all zero"),
        (NUMPY_NAME, "624I", [0x7FFFFFFF] + [0] * 623, "must not be all zero"),
    ],
)
@pytest.mark.parametrize("name", ["numpy", "old"])
def test_damaged_numpy_states_are_refused(job, name, at, kind, values, says):
    state = fastseed.state_dict(rng=True)
    draws(job)
    refused(job, change_bytes(state, name, at, kind, *values), ValueError, says)


def change_json(state, name, path, value):
    """The JSON of a NumPy state with one value replaced, or removed (``...``); the same size."""
    data = bytes(state[f"rng.3.{name}"].tolist())
    parsed = json.loads(data[NUMPY_NAME:])
    inner = parsed
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    changed = (data[:NUMPY_NAME] + json.dumps(parsed).encode()).ljust(len(data))
    assert len(changed) == len(data)
    return {**state, f"rng.3.{name}": torch.frombuffer(bytearray(changed), dtype=torch.uint8)}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["bit_generator"], "SFC64"),
        (["bit_generator"], ...),
        (["state"], None),
        (["state"], []),
        (["state", "inc"], ...),
        (["state", "inc"], None),
        (["state", "inc"], -1),
        (["state", "inc"], 2**130),
        (["state", "inc"], 2.5),
        (["state", "inc"], "1"),
        (["has_uint32"], ...),
        (["uinteger"], "x"),
        (["uinteger"], -1),
        (["foreign"], 1),
    ],
)
def test_damaged_pcg64_states_are_refused(job, path, value):
    state = fastseed.state_dict(rng=True)
    draws(job)
    refused(job, change_json(state, "new", path, value), ValueError, "state['rng.3.new']")


@pytest.mark.parametrize("text", [b"null", b"5", b"[1]", b'"x"', b"{}", b"{", b"\xff\xfe"])
def test_json_that_is_no_state_is_refused(job, text):
    state = fastseed.state_dict(rng=True)
    data = bytes(state["rng.3.new"].tolist())
    changed = (data[:NUMPY_NAME] + text).ljust(len(data))
    value = torch.frombuffer(bytearray(changed), dtype=torch.uint8)
    refused(job, {**state, "rng.3.new": value}, ValueError, "state['rng.3.new']")
