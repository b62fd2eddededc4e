"""state_dict and load_state_dict: the way back is exact, and what is damaged changes nothing."""

from __future__ import annotations

import io
import json
import logging
import random
import struct

import numpy as np
import pytest
import torch
from support import holds_key, run_script, scramble, snapshot

import fastseed
from fastseed import GeneratorPool


@pytest.fixture
def job():
    """A job in the middle of epoch 7; its registered generators by name."""
    fastseed.init(42, rank=3, world_size=8)
    generators = {
        "new": np.random.default_rng(1),
        "old": np.random.RandomState(1),
        "own": random.Random(1),
        "one": torch.Generator(),
        "pool": GeneratorPool([torch.Generator() for _ in range(3)]),
    }
    for name, generator in generators.items():
        fastseed.register_generator(generator, name=name)
    fastseed.reseed(1, 7, 9)
    draws(generators)
    return generators


def draws(generators):
    """An odd number of everything, so that something is cached everywhere."""
    return [
        [random.random(), random.gauss(0, 1), np.random.standard_normal(), np.random.random()],
        [torch.randn(3).tolist(), torch.randn((), dtype=torch.float64).item()],
        [generators["new"].integers(0, 9, dtype=np.uint16), generators["new"].random()],
        [generators["old"].standard_normal(), generators["own"].gauss(0, 1)],
        [torch.randn(3, generator=g).tolist() for g in (generators["one"], *generators["pool"])],
    ]


def everything(generators):
    """All states that a refused load might have changed."""
    return (
        snapshot(),
        repr(fastseed.api._seeder),
        fastseed.streams._origin,
        str(generators["new"].bit_generator.state),
        str(generators["old"].get_state(legacy=False)),
        generators["own"].getstate(),
        [g.get_state().tolist() for g in (generators["one"], *generators["pool"])],
    )


def saved_and_loaded(state):
    """Through a file of torch, without pickled objects."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# ---------------------------------------------------------------- the way back


def test_state_holds_ints_strings_and_bytes(job):
    fastseed.register_generator(print, name="callable")
    state = fastseed.state_dict(rng=True)
    coordinates = {"task": 1, "epoch": 7, "step": 9, "master_seed": 42, "rank": 3, "world_size": 8}
    assert {k: state[k] for k in coordinates} == coordinates
    assert (state["format"], state["version"], state["derivation"]) == ("fastseed", 1, 1)
    assert state["scheme"] == "philox-v1"
    exact = {name for name in state if name.startswith("rng.")}
    assert exact == {f"rng.{name}" for name in ("python", "numpy", "torch.cpu", *job)}
    for name, value in state.items():
        if name in exact:
            assert value.dtype == torch.uint8 and value.dim() == 1 and value.is_contiguous(), name
        else:
            assert type(value) in (int, str), name
    assert not any(name.startswith("rng.") for name in fastseed.state_dict())


def test_exact_round_trip_through_torch_save(job):
    state = saved_and_loaded(fastseed.state_dict(rng=True))
    expected = draws(job), draws(job)
    scramble()
    draws(job)
    assert fastseed.load_state_dict(state) is None
    assert (draws(job), draws(job)) == expected
    fastseed.load_state_dict(state)  # and again: loading has not used it up
    assert (draws(job), draws(job)) == expected


def test_state_is_a_copy(job):
    state = fastseed.state_dict(rng=True)
    before = {k: v.clone() for k, v in state.items() if k.startswith("rng.")}
    draws(job)
    fastseed.reseed(2)
    assert all(torch.equal(state[k], v) for k, v in before.items())
    fastseed.load_state_dict(state)
    draws(job)
    assert all(torch.equal(state[k], v) for k, v in before.items())


def test_taking_the_state_changes_nothing(job):
    before = everything(job)
    fastseed.state_dict(rng=True)
    assert everything(job) == before


def test_another_process_goes_on_where_the_first_stopped(tmp_path):
    file = tmp_path / "state.pt"
    saved = run_script("resume.py", "save", file)
    assert run_script("resume.py", "load", file) == saved
    assert saved[0] == [1, 7, 9]


def test_coordinates_alone_resume_at_the_beginning_of_the_scope(job):
    fastseed.reseed(1, 8)
    expected = draws(job)
    state = saved_and_loaded(fastseed.state_dict())
    fastseed.reseed(2)
    scramble()
    fastseed.load_state_dict(state)
    assert draws(job) == expected
    assert tuple(fastseed.api._seeder.scope) == (1, 8, 0)


def test_state_before_the_first_reseed():
    fastseed.init(42)
    state = fastseed.state_dict()
    assert "task" not in state
    scramble()
    before = snapshot()
    fastseed.init(43)
    fastseed.load_state_dict(state)
    assert snapshot() == before
    assert fastseed.get_master_seed() == 42 and fastseed.api._seeder.scope is None
    exact = fastseed.state_dict(rng=True)
    random.random(), np.random.random(), torch.rand(1)
    fastseed.load_state_dict(exact)
    assert snapshot() == before


def test_master_seed_comes_with_the_state():
    """A job that drew its seed resumes with that one, pools included."""
    fastseed.init(None)
    fastseed.reseed(1, 3)
    state, expected = fastseed.state_dict(), fastseed.key("x", task=1)
    pool = GeneratorPool([torch.Generator()], name="x")
    fastseed.init(None)
    assert fastseed.key("x", task=1) != expected
    fastseed.load_state_dict(state)
    assert fastseed.key("x", task=1) == expected
    assert fastseed.get_master_seed() == state["master_seed"]
    pool.reseed(1)
    assert holds_key(pool[0], expected)


def test_on_another_rank_the_scope_begins_anew(job, caplog):
    """Its exact states are another rank's; what belongs to this one is known all the same."""
    state = fastseed.state_dict(rng=True)
    fastseed.init(42, rank=4, world_size=8)
    fastseed.reseed(1, 7, 9)
    expected = snapshot()
    scramble()
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        fastseed.load_state_dict(state)
    assert snapshot() == expected
    assert fastseed.api._seeder.rank == 4
    (said,) = (record.getMessage() for record in caplog.records)
    assert "rank 3's and this is rank 4" in said


def test_another_world_size_is_fine(job):
    state = fastseed.state_dict(rng=True)
    at_that_point = snapshot()
    fastseed.init(42, rank=3, world_size=4)
    for name, generator in job.items():
        fastseed.register_generator(generator, name=name)
    fastseed.load_state_dict(state)
    assert snapshot() == at_that_point
    assert fastseed.api._seeder.world_size == 4


def test_generators_without_a_state_begin_the_scope(job, caplog):
    state = fastseed.state_dict(rng=True)
    added, seen = torch.Generator(), []
    fastseed.register_generator(added, name="added")
    fastseed.register_generator(seen.append, name="callable")
    with caplog.at_level(logging.INFO, logger="fastseed"):
        fastseed.load_state_dict(state)
    assert holds_key(added, fastseed.key("added", task=1, epoch=7, step=9))
    assert seen == [fastseed.seed("callable", task=1, epoch=7, step=9) % 2**31]
    assert any("added" in record.getMessage() for record in caplog.records)


def test_callables_are_named_as_having_no_state(job, caplog):
    fastseed.register_generator(print, name="callable")
    with caplog.at_level(logging.INFO, logger="fastseed"):
        fastseed.state_dict(rng=True)
    assert any("callable" in record.getMessage() for record in caplog.records)


def test_views_into_one_buffer_are_read_where_they_are(job):
    """Formats that map a file hand out slices of it; torch's set_state misreads those by itself."""
    state = fastseed.state_dict(rng=True)
    expected = draws(job)
    for stride in (1, 2):
        sliced = dict(state)
        for name, value in state.items():
            if name.startswith("rng."):
                buffer = torch.zeros(16 + stride * len(value) * 40, dtype=torch.uint8)
                sliced[name] = buffer[16 : 16 + stride * len(value) : stride]
                sliced[name].copy_(value)
        fastseed.load_state_dict(sliced)
        assert draws(job) == expected


def test_legacy_scheme_round_trip():
    fastseed.init(42, 8, 3, scheme="fwr13y")
    fastseed.reseed(1, 7)
    torch.randn(3), np.random.standard_normal(), random.gauss(0, 1)
    state = saved_and_loaded(fastseed.state_dict(rng=True))
    before = snapshot()
    fastseed.reseed(0)
    fastseed.load_state_dict(state)
    assert snapshot() == before
    assert state["scheme"] == "fwr13y"


def test_two_seeders_have_states_of_their_own():
    a, b = (fastseed.Seeder(seed, rank=0, world_size=1) for seed in (1, 2))
    a.reseed(1, 5)
    state = a.state_dict()
    b.load_state_dict(state)
    assert (b.master_seed, tuple(b.scope)) == (1, (1, 5, 0))
    assert b.state_dict() == state


def test_global_numpy_generator_of_another_kind():
    fastseed.init(42)
    np.random.set_bit_generator(np.random.PCG64(1))
    fastseed.reseed(1)
    np.random.standard_normal()
    state = saved_and_loaded(fastseed.state_dict(rng=True))
    expected = np.random.standard_normal(3).tolist()
    fastseed.load_state_dict(state)
    assert np.random.standard_normal(3).tolist() == expected


def test_distributed_checkpoint_takes_the_state(job, tmp_path):
    import torch.distributed.checkpoint as dcp

    state = fastseed.state_dict(rng=True)
    expected = draws(job)
    dcp.save({"seeder": state}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    fastseed.reseed(1, 8)
    loaded = {"seeder": fastseed.state_dict(rng=True)}
    dcp.load(loaded, checkpoint_id=tmp_path / "dcp", no_dist=True)
    fastseed.load_state_dict(loaded["seeder"])
    assert draws(job) == expected


# ---------------------------------------------------------------- what is refused


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
        ({"rank": 2**24 - 1}, ValueError, "state['rank'] must be in [0, 16777214]"),
        ({"rank": None}, TypeError, "state['rank'] must be an integer, got None"),
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
    refused(job, state, ValueError, "state must hold all of ('task', 'epoch', 'step') or none")


@pytest.mark.parametrize("state", [None, [], "state", {}, {"epoch": 3, "model": {}}])
def test_foreign_objects_are_refused(job, state):
    refused(job, state, (TypeError, ValueError), "state")


def test_states_of_unregistered_generators_are_refused(job):
    state = fastseed.state_dict(rng=True)
    fastseed.unregister_generator(job["new"])
    refused(job, state, ValueError, "state['rng.new'] belongs to a generator that must be regist")


NAMES = ["python", "numpy", "torch.cpu", "new", "old", "own", "one", "pool"]


def damage(state, name):
    """Every way to damage the exact state of one generator."""
    field = f"rng.{name}"
    whole = state[field]
    for value in (None, 3, "x", whole.tolist(), whole.long(), whole.view(torch.int8), whole[None]):
        yield {field: value}
    for cut in (whole[:-1], whole[:0], whole[1:], torch.cat([whole, whole[:1]])):
        yield {field: cut}
    for other in NAMES:
        if other != name and other not in {"numpy": "old", "old": "numpy"}.get(name, ""):
            foreign = state[f"rng.{other}"]
            if foreign.shape != whole.shape:
                yield {field: foreign}
    yield {field: torch.full_like(whole, 255)}
    yield {field: torch.zeros_like(whole)}


@pytest.mark.parametrize("name", NAMES)
def test_damaged_states_are_refused_and_change_nothing(job, name):
    state = fastseed.state_dict(rng=True)
    draws(job)
    for change in damage(state, name):
        says = f"state['rng.{name}']"
        refused(job, {**state, **change}, (ValueError, TypeError), says)


def words_at(name, state):
    """A copy of a state, and its 624 words as an array that writes into the copy."""
    data = state[f"rng.{name}"].clone()
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
        refused(job, {**state, f"rng.{name}": data}, ValueError, "must not be all zero")
    words[0] = 0x80000000
    fastseed.load_state_dict({**state, f"rng.{name}": data})


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
    data = state[f"rng.{name}"].clone()
    at = 5056 + 8 if name == "pool" else 8
    packed = torch.frombuffer(bytearray(struct.pack("=iiQ", *head)), dtype=torch.uint8)
    data[at : at + 16] = packed
    refused(job, {**state, f"rng.{name}": data}, ValueError, f"state['rng.{name}']")


def change_json(state, name, path, value):
    """The JSON of a NumPy state with one value replaced, or removed (``...``)."""
    parsed = json.loads(bytes(state[f"rng.{name}"].tolist()))
    inner = parsed
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    data = torch.frombuffer(bytearray(json.dumps(parsed).encode()), dtype=torch.uint8)
    return {**state, f"rng.{name}": data}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["bit_generator"], "PCG64"),
        (["bit_generator"], ...),
        (["state"], ...),
        (["state"], None),
        (["state"], 5),
        (["state", "pos"], ...),
        (["state", "pos"], None),
        (["state", "pos"], [1]),
        (["state", "pos"], "x"),
        (["state", "pos"], 3.7),
        (["state", "pos"], -1),
        (["state", "pos"], 625),
        (["state", "key"], [1] * 624),
        (["state", "key", "values"], [0] * 624),
        (["state", "key", "values"], [1] * 623),
        (["state", "key", "values"], [2**32] * 624),
        (["state", "key", "values"], [-1] * 624),
        (["state", "key", "values"], ["a"] * 624),
        (["state", "key"], {"dtype": "float64", "values": [1.5] * 624}),
        (["state", "key"], {"dtype": "nonsense", "values": [1] * 624}),
        (["gauss"], "x"),
        (["has_gauss"], "x"),
        (["has_gauss"], None),
    ],
)
@pytest.mark.parametrize("name", ["numpy", "old"])
def test_damaged_numpy_states_are_refused(job, name, path, value):
    state = fastseed.state_dict(rng=True)
    draws(job)
    changed = change_json(state, name, path, value)
    refused(job, changed, ValueError, f"state['rng.{name}']")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["bit_generator"], "SFC64"),
        (["state", "inc"], ...),
        (["state", "inc"], None),
        (["state", "inc"], -1),
        (["state", "inc"], 2**130),
        (["state", "inc"], 2.5),
        (["has_uint32"], ...),
        (["uinteger"], "x"),
        (["uinteger"], -1),
    ],
)
def test_damaged_pcg64_states_are_refused(job, path, value):
    state = fastseed.state_dict(rng=True)
    draws(job)
    refused(job, change_json(state, "new", path, value), ValueError, "state['rng.new']")
