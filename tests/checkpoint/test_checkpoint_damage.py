"""load_state_dict refuses invalid states, and then no generator has changed."""

import hashlib
import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from helpers.jobs import draws, everything, start
from helpers.support import freed, scramble, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

import fastseed
from fastseed.checkpoint import format as file_format


@pytest.fixture
def job():
    return start()


def refused(job, state, error, reason):
    before = everything(job)
    with pytest.raises(error) as caught:
        fastseed.load_state_dict(state)
    assert str(caught.value).startswith("fastseed.load_state_dict: "), str(caught.value)
    assert reason in str(caught.value), str(caught.value)
    assert everything(job) == before


FREED = freed(torch.zeros(5000, dtype=torch.uint8))
OF_RANKS = "state must hold exact states as 'rng.<rank below world_size>.<name>'"
ODD = "rng.", "rng.x.python", "rng.8.python", "rng.04.python", "rng.4", "rng.4.", "rng.²"
ABSENT = "belongs to a generator that must be registered, or an accel"


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"format": "other"}, ValueError, "state['format'] must be 'fastseed', got 'other'"),
        ({"version": 2}, ValueError, "must be 1; a newer fastseed wrote it, load it with that"),
        ({"version": True}, ValueError, "state['version'] must be 1, got True"),
        ({"derivation": 2}, ValueError, "must be 1; a newer fastseed wrote it"),
        ({"master_seed": 2**64}, ValueError, "state['master_seed'] must be in [0, "),
        ({"master_seed": 42.0}, TypeError, "state['master_seed'] must be an integer, got 42.0"),
        ({"reseeded": 0}, ValueError, "state must hold zeros for task, epoch and step before a"),
        ({"world_size": 0}, ValueError, "state['world_size'] must be in [1, 16777215], got 0"),
        ({"world_size": 3}, ValueError, f"{OF_RANKS}, got 'rng.3.python'"),
        ({"task": 2**24}, ValueError, "state['task'] must be in [0, 16777215]"),
        ({"epoch": True}, TypeError, "state['epoch'] must be an integer, got True"),
        ({"extra": 1}, ValueError, "state must hold nothing but what state_dict() wrote"),
        *(({key: torch.zeros(9, dtype=torch.uint8)}, ValueError, OF_RANKS) for key in ODD),
        ({"rng.4.python": [1, 2]}, ValueError, "must be a 1-D uint8 tensor with data, got [1, 2]"),
        *(
            ({"rng.3.python": held}, ValueError, "rng.3.python'] must be a 1-D uint8 tensor with")
            for held in (FREED, FREED.to("meta"))
        ),
        *(
            ({f"rng.3.{name}": ...}, ValueError, "state must hold exact states of all of")
            for name in ("python", "numpy", "torch.cpu")
        ),
        ({"rng.3.torch.cuda": torch.zeros(16).byte()}, ValueError, ABSENT),
        ({"rng.3.gone": torch.zeros(16).byte()}, ValueError, f"state['rng.3.gone'] {ABSENT}"),
    ],
)
def test_wrong_fields_are_refused(job, change, error, reason):
    state = {**fastseed.state_dict(rng=True), **change}
    refused(job, {k: v for k, v in state.items() if v is not ...}, error, reason)


# ---------------------------------------------------------------- exact states


@pytest.mark.parametrize(
    "name", ["python", "own", "numpy", "old", "torch.cpu", "one", "pool", "new"]
)
def test_damaged_states_are_refused(job, name):
    state, key = fastseed.state_dict(rng=True), f"rng.3.{name}"
    whole = state[key]
    draws(job)
    for damaged in (
        *(None, 3, "x", whole.tolist(), whole.long(), whole.view(torch.int8), whole[None]),
        *(whole[:-1], whole[:0], whole[1:], torch.cat([whole, whole[:1]])),
        *(torch.full_like(whole, 255), torch.zeros_like(whole)),
    ):
        refused(job, {**state, key: damaged}, (ValueError, TypeError), f"state['{key}']")


@pytest.mark.parametrize("name", ["python", "numpy", "old"])
def test_every_possible_position_is_accepted(job, name):
    state = fastseed.state_dict(rng=True)
    for position in (0, 1, 2, 623, 624):
        words = state[f"rng.3.{name}"].clone()
        words.numpy()[2496:2500] = np.array([position], "<u4").view(np.uint8)
        possible = {**state, f"rng.3.{name}": words}
        fastseed.load_state_dict(possible)
        again = fastseed.state_dict(rng=True)
        assert all(torch.equal(again[k], v) for k, v in possible.items() if k.startswith("rng."))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["bit_generator"], "SFC64"),
        (["bit_generator"], ...),
        (["state"], None),
        (["state", "inc"], ...),
        (["state", "inc"], -1),
        (["state", "inc"], 2**130),
        (["state", "inc"], "1"),
        (["has_uint32"], ...),
        (["uinteger"], -1),
        (["unknown"], 1),
    ],
)
def test_damaged_pcg64_states_are_refused(job, path, value):
    state = fastseed.state_dict(rng=True)
    draws(job)
    data = bytes(state["rng.3.new"].tolist())
    parsed = json.loads(data)
    inner = parsed
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    damaged = torch.frombuffer(
        bytearray(json.dumps(parsed).encode().ljust(len(data))), dtype=torch.uint8
    )
    refused(job, {**state, "rng.3.new": damaged}, ValueError, "state['rng.3.new']")


@pytest.mark.parametrize("text", [b"null", b"[1]", b"{}", b"{", b"\xff\xfe", b"[" * 1024])
def test_json_that_is_not_a_state_is_refused(job, text):
    state = fastseed.state_dict(rng=True)
    damaged = torch.frombuffer(bytearray(text.ljust(len(state["rng.3.new"]))), dtype=torch.uint8)
    refused(job, {**state, "rng.3.new": damaged}, ValueError, "state['rng.3.new']")


def saved() -> bytes:
    """The bytes of a job without registered generators."""
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 7, 9)
    scramble()
    return file_format.encode("test", fastseed.state_dict(rng=True))


def torch_file(held: object, **how: bool) -> bytes:
    file = io.BytesIO()
    torch.save(held, file, **how)
    return file.getvalue()


def sealed(held: object) -> bytes:
    """Bytes with a correct checksum and any content."""
    whole = held if isinstance(held, bytes) else torch_file(held)
    return whole + hashlib.sha256(whole).digest()


def assert_refused(path, data: bytes, reason: str) -> None:
    path.write_bytes(data)
    before = snapshot(), repr(fastseed.derivation.context.seeder)
    with pytest.raises((TypeError, ValueError)) as caught:
        fastseed.checkpoint.load(path)
    text = str(caught.value)
    assert text.startswith("fastseed.") and reason in text, text
    assert text.isprintable()
    assert (snapshot(), repr(fastseed.derivation.context.seeder)) == before


def test_layout_is_the_documented_one(tmp_path):
    data = saved()
    assert data[-32:] == hashlib.sha256(data[:-32]).digest()
    (tmp_path / "state").write_bytes(data)
    held = torch.load(tmp_path / "state", weights_only=True)
    assert set(held.pop("padding")) == {" "}
    state = fastseed.state_dict(rng=True)
    assert list(held) == list(state)
    for key, value in state.items():
        assert torch.equal(held[key], value) if key.startswith("rng.") else held[key] == value


def size_of(state):
    """Return that of the bytes, and of the pickle in them, whose end torch pads."""
    data = file_format.encode("test", state)
    with zipfile.ZipFile(io.BytesIO(data[:-32])) as archive:
        return len(data), archive.getinfo("archive/data.pkl").file_size


def test_size_does_not_depend_on_values():
    """A distributed checkpoint is loaded into tensors of the sizes of the current state."""
    sizes = set()
    for master_seed in (0, 255, 256, 2**31, 2**40, 2**64 - 1):
        fastseed.init(master_seed, rank=0, world_size=1)
        sizes.add(size_of(fastseed.state_dict()))
        for where in ((0, 0, 0), (70_000, 2**31, 2**31), (2**24 - 1, 2**32 - 1, 2**64 - 1)):
            fastseed.reseed(*where)
            sizes.add(size_of(fastseed.state_dict()))
    assert len(sizes) == 1


def test_views_are_saved_without_their_storage():
    fastseed.init(42, rank=0, world_size=1)
    state = fastseed.state_dict()
    views = torch.arange(2**16).byte().as_strided((2, 40), (2**15, 2))
    exact = {"rng.0.a": views[0], "rng.0.b": views[1]}
    data = file_format.encode("test", {**state, **exact})
    again = file_format.decode(data)
    assert len(data) < 2**13 and all(torch.equal(again[key], exact[key]) for key in exact)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_flipped_bit_or_truncation_is_refused(data):
    whole = bytearray(saved())
    before = snapshot()
    if data.draw(st.booleans()):
        bit = data.draw(st.integers(0, 8 * len(whole) - 1))
        whole[bit // 8] ^= 1 << bit % 8
    else:
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    with pytest.raises(file_format.Damaged):
        file_format.decode(bytes(whole))
    assert snapshot() == before


STATE = {
    "format": "fastseed", "version": 1, "derivation": 1, "master_seed": 42, "world_size": 1,
    "reseeded": 1, "task": 1, "epoch": 7, "step": 9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "its checksum is wrong (it has 0 bytes)"),
        (sealed(STATE) + b"x", "its checksum is wrong"),
        (torch_file(STATE), "or not written by fastseed.checkpoint"),
        (sealed(b"PK\3\4" + bytes(100)), "torch.load refuses it"),
        (sealed([STATE]), "it does not hold a state of fastseed"),
        (sealed({**STATE, "world_size": "1"}), "it does not hold a state of fastseed"),
        (sealed({**STATE, "task": 1.5}), "state['task'] must be an integer"),
        (sealed({**STATE, "rng.0.numpy": torch.zeros(2, 2)}), "rng.0.numpy"),
        (sealed({**STATE, "version": 2}), "a newer fastseed wrote it"),
        (sealed({**STATE, "\x1b[31m": 1}), r"\x1b[31m"),
    ],
)
def test_reasons(tmp_path, data, reason):
    saved()
    assert_refused(tmp_path / "state", data, reason)


class Trap:
    """An object whose unpickling makes a folder."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_malicious_pickles_are_refused_and_not_run(tmp_path):
    saved()
    sprung = {"x": Trap(tmp_path / "sprung")}
    old = torch_file(sprung, _use_new_zipfile_serialization=False)
    for data in (torch_file(sprung), old, pickle.dumps(sprung)):
        assert_refused(tmp_path / "state", data, "its checksum is wrong")
        assert_refused(tmp_path / "state", sealed(data), "torch.load refuses it (Unpickling")
        held = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        state = {**fastseed.state_dict(rng=True), "rng.0.numpy": held}
        assert_refused(tmp_path / "state", file_format.encode("test", state), "rng.0.numpy")
    assert not (tmp_path / "sprung").exists()
