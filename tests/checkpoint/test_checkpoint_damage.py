"""What load_state_dict refuses, and that a refusal leaves every generator as it was."""

from __future__ import annotations

import json
import struct

import pytest
import torch
from helpers.jobs import draws, everything, start

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
        (
            {"version": 2},
            ValueError,
            "must be 1; a newer fastseed wrote it, load it with that",
        ),
        ({"version": 0}, ValueError, "state['version'] must be 1, got 0"),
        ({"version": None}, ValueError, "state['version'] must be 1, got None"),
        (
            {"derivation": 2},
            ValueError,
            "must be 1; a newer fastseed wrote it",
        ),
        ({"scheme": "fwr13y"}, ValueError, "state['scheme'] must be 'philox-v1', got 'fwr13y'"),
        ({"master_seed": -1}, ValueError, "state['master_seed'] must be in [0, "),
        ({"master_seed": 2**64}, ValueError, "state['master_seed'] must be in [0, "),
        ({"master_seed": "42"}, TypeError, "state['master_seed'] must be an integer, got '42'"),
        ({"master_seed": 42.0}, TypeError, "state['master_seed'] must be an integer, got 42.0"),
        ({"reseeded": 0}, ValueError, "state must hold zeros for task, epoch and step before a"),
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


@pytest.mark.parametrize(
    "key", ["rng.", "rng.x.python", "rng.8.python", "rng.04.python", "rng.4", "rng.4.", "rng.²"]
)
def test_keys_that_no_rank_writes_are_refused(job, key):
    state = {**fastseed.state_dict(), key: torch.zeros(9, dtype=torch.uint8)}
    refused(job, state, ValueError, "state must hold exact states as 'rng.<rank below 8>.<name>'")


def test_states_of_a_rank_that_the_job_did_not_have_are_refused(job):
    state = {**fastseed.state_dict(rng=True), "world_size": 3}
    refused(job, state, ValueError, "'rng.<rank below 3>.<name>', got 'rng.3.python'")


def test_other_ranks_states_must_be_bytes(job):
    state = {**fastseed.state_dict(rng=True), "rng.4.python": [1, 2]}
    refused(job, state, ValueError, "state['rng.4.python'] must be a 1-D uint8 tensor, got [1, 2]")


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
    refused(job, state, ValueError, "belongs to an accelerator that this process does not have")


def test_a_legacy_state_with_a_step_moves_nothing():
    fastseed.init(42, 1, 0, scheme="fwr13y")
    fastseed.reseed(1, 2)
    state = {**fastseed.state_dict(), "step": 3, "master_seed": 99}
    with pytest.raises(ValueError, match="step must be 0"):
        fastseed.load_state_dict(state)
    seeder = fastseed.derivation.context.seeder
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


SIZES = {"python": 2508, "own": 2508, "numpy": 2524, "old": 2524, "torch.cpu": 2520, "one": 2520}
BEFORE = {"numpy": 16, "old": 16, "pool": 2520}  # bytes before the words that are changed here


def test_sizes_of_packed_states(job):
    """All three in 7.6 KB, with 24 bytes of coordinates."""
    state = fastseed.state_dict(rng=True)
    assert {name: len(state[f"rng.3.{name}"]) for name in SIZES} == SIZES
    assert len(state["rng.3.pool"]) == 3 * 2520
    assert 24 + sum(SIZES[name] for name in ("python", "numpy", "torch.cpu")) <= 7600


def change_bytes(state, name, at, kind, *values):
    """An MT19937's state with values written over it, at an offset from its words."""
    data = bytearray(state[f"rng.3.{name}"].numpy().tobytes())
    struct.pack_into(f"<{kind}", data, BEFORE.get(name, 0) + at, *values)
    return {**state, f"rng.3.{name}": torch.frombuffer(data, dtype=torch.uint8)}


MT_NAMES = [*SIZES, "pool"]


@pytest.mark.parametrize("name", MT_NAMES)
def test_all_zero_words_are_refused(job, name):
    """They would draw zeros for ever. Only the top bit of word 0 belongs to the state."""
    state = fastseed.state_dict(rng=True)
    draws(job)
    for first in (0, 1, 0x7FFFFFFF):
        zeros = change_bytes(state, name, 0, "624I", first, *[0] * 623)
        refused(job, zeros, ValueError, "must not be all zero")
    fastseed.load_state_dict(change_bytes(state, name, 0, "624I", 2**31, *[0] * 623))


@pytest.mark.parametrize(
    ("at", "kind", "value", "says"),
    [
        (2496, "H", 625, "position must be in [0, 624], got 625"),
        (2496, "H", 65535, "position must be in [0, 624], got 65535"),
        (2498, "H", 4, "its flags must be below"),
        (2498, "H", 65535, "its flags must be below"),
        (2498, "H", 0, "what is not cached must be 0, got"),
    ],
)
@pytest.mark.parametrize("name", MT_NAMES)
def test_impossible_positions_and_flags_are_refused(job, name, at, kind, value, says):
    torch.randn(())
    state = fastseed.state_dict(rng=True)
    assert state[f"rng.3.{name}"][BEFORE.get(name, 0) + 2498] != 0  # something is cached
    draws(job)
    refused(job, change_bytes(state, name, at, kind, value), ValueError, says)


@pytest.mark.parametrize("name", MT_NAMES)
def test_every_possible_position_is_taken(job, name):
    state = fastseed.state_dict(rng=True)
    for position in (0, 1, 2, 623, 624):
        changed = change_bytes(state, name, 2496, "H", position)
        fastseed.load_state_dict(changed)
        again = fastseed.state_dict(rng=True)
        assert all(torch.equal(again[k], v) for k, v in changed.items() if k.startswith("rng."))


@pytest.mark.parametrize("name", ["numpy", "old"])
@pytest.mark.parametrize("kind", [b"PCG64", b"", b"MT19937x"])
def test_states_of_another_bit_generator_are_refused(job, name, kind):
    state = fastseed.state_dict(rng=True)
    draws(job)
    says = "its bit generator must be MT19937"
    refused(job, change_bytes(state, name, -16, "16s", kind), ValueError, says)


NUMPY_NAME = 16  # bytes of the bit generator's name, before what it holds


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
