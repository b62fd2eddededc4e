"""Objects that resemble states, repeat them or nest them: passed over or refused, within limits."""

from __future__ import annotations

import pickle
import random
import struct
import time

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from helpers.inspections import inspect_within

import fastseed
from fastseed import checkpoint
from fastseed.tools.checkpoints import folders, inspection, pickles
from fastseed.tools.checkpoints import states as finding

_LIMIT = 64 << 20  # bytes that reading a small file may take


def inspect(path):
    return inspect_within(path, _LIMIT)


def own_dict():
    held = {"bit_generator": "MT19937", "pos": 0}
    held["state"] = held
    return held


@pytest.mark.parametrize(
    "value",
    [
        ["MT19937", [1, 2], 5],
        ["MT19937", [1] * 623 + [-1], 5],
        ["MT19937", [1] * 624, "5"],
        ["MT19937", [1] * 624, 5, 1, "x"],
        ["MT19937", [[1]] * 624, 5],
        ["MT19937", np.arange(9, dtype=np.uint32), 5],
        {"bit_generator": "MT19937", "state": {"key": [-1], "pos": 0}},
        {"bit_generator": "MT19937", "state": {"key": [1, 2], "pos": 0}},
        {"bit_generator": "MT19937", "state": {"key": ["a"], "pos": 0}},
        {"bit_generator": "MT19937", "state": {"key": [1] * 624, "pos": 0}, "has_gauss": 1},
        {"bit_generator": "PCG64", "state": {}},
        {"bit_generator": "PCG64"},
        {"bit_generator": ["PCG64"], "state": {}},
        {"bit_generator": "PCG64", "state": {str(i): i for i in range(17)}},
        {"bit_generator": "SFC64", "state": {"state": {"state": {"state": {}}}}},
        own_dict(),
        (3, [1] * 625, None, None),
        (3, (1,) * 624 + (700,), None),
        (3, (1,) * 624 + (2**70,), None),
    ],
)
def test_objects_that_resemble_a_state_hide_no_other(value, tmp_path):
    data = pickle.dumps({"before": value, "python": random.getstate(), "after": value})
    (tmp_path / "a.pkl").write_bytes(data)
    states, why = inspect(tmp_path / "a.pkl")
    assert [one.stream for one in states] == ["python"] and not why


def test_states_of_every_bit_generator_and_form_are_still_read(tmp_path):
    held = {
        kind: getattr(np.random, kind)(7).state
        for kind in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
    }
    held["legacy"] = np.random.RandomState(3).get_state()
    held["listed"] = ["MT19937", held["legacy"][1].tolist(), 624, 0, 0.0]
    held["dict"] = np.random.RandomState(3).get_state(legacy=False)
    held["python"] = [3, list(random.getstate()[1]), None]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(held))
    states, _ = inspect(tmp_path / "a.pkl")
    assert len(states) == len(held)


# ---------------------------------------------------------------- memory and time


def test_names_joined_of_long_memoised_texts(tmp_path):
    texts = b"".join(b"X" + struct.pack("<I", n) + b"a" * n + b"\x94" for n in (1000, 100_000))
    for data in (b"h\x01h\x01\x93" * 20_000, b"h\x00h\x00\x93" * 50_000):
        (tmp_path / "a.pkl").write_bytes(b"\x80\x04" + texts + data + b".")
        assert inspect(tmp_path / "a.pkl")[0] == ()
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04NN\x93.")
    assert "STACK_GLOBAL requires str" in inspect(tmp_path / "a.pkl")[1]


@pytest.mark.parametrize(
    "form",
    [
        b"(\x8c\x07MT19937h\x08K\x05t",
        b"}(\x8c\x0dbit_generator\x8c\x07MT19937\x8c\x05state}(\x8c\x03keyh\x08\x8c\x03posK\x00uu",
        b"(K\x03h\x08Nt",
    ],
)
def test_nested_lists_in_place_of_words(form, tmp_path, monkeypatch):
    monkeypatch.setattr(finding, "_MAX_VISITS", 5_000)
    lists = b"](" + b"K\x01" * 10 + b"e\x94" + b"".join(
        b"](" + (b"h" + bytes([level])) * 10 + b"e\x94" for level in range(8)
    )  # fmt: skip
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04" + lists + form + b".")
    assert inspect(tmp_path / "a.pkl")[0] == ()


def test_lists_of_many_entries_that_are_visited_many_times(tmp_path, monkeypatch):
    monkeypatch.setattr(finding, "_MAX_ENTRIES", 100_000)
    wide = b"](" + b")" * 5_000 + b"e\x94"  # 5,000 times nothing
    top = b"](" + b"h\x00" * 5_000 + b"e."
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04" + wide + top)
    states, why = inspect(tmp_path / "a.pkl")
    assert states == () and "holds more than" in why


def test_memory_of_the_walk_is_that_of_its_depth(tmp_path, monkeypatch):
    monkeypatch.setattr(finding, "_MAX_VISITS", 5_000)
    lists = b"](" + b"](K\x01e" * 50_000 + b"e\x94" + b"".join(
        b"](" + (b"h" + bytes([level])) * 4 + b"e\x94" for level in range(20)
    )  # fmt: skip
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04" + lists + b".")
    states, why = inspect(tmp_path / "a.pkl")
    assert states == () and "holds more than 5000 objects" in why


def test_states_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(finding, "_MAX_STATES", 50)
    one = pickle.dumps(random.getstate(), 4)[11:-1]
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04](" + one + b"2" * 50 + b"e.")
    found, why = inspect(tmp_path / "a.pkl")
    assert found == () and "it holds more than 50 states" in why
    monkeypatch.setattr(inspection, "_MAX_STATES", 2)
    for i in range(3):
        (tmp_path / f"rng_{i}.pkl").write_bytes(pickle.dumps(random.getstate()))
    (tmp_path / "a.pkl").unlink()
    found, why = inspect(tmp_path)
    assert len(found) == 2 and "rng_2.pkl and what follows are not read" in why


def test_numbers_of_many_digits_as_keys():
    huge = b"\x8b" + struct.pack("<i", 1 << 20) + b"\x01" * (1 << 20) + b"\x94"
    start = time.process_time()
    found = pickles.loads(b"\x80\x04" + huge + b"}(" + b"h\x00N" * 50_000 + b"u.")
    assert time.process_time() - start < 20
    assert all(isinstance(key, pickles.Opaque) for key in found) and len(found) == 50_000
    assert pickles.loads(pickle.dumps({2**59: 1, -5: 2, True: 3})) == {2**59: 1, -5: 2, 1: 3}


@pytest.mark.parametrize("claimed", [400 << 20, 17 << 20])
def test_a_zip_file_whose_directory_is_a_hole(claimed, tmp_path):
    end = struct.pack("<4sHHHHLLH", b"PK\x05\x06", 0, 0, 1, 1, claimed, 0, 0)
    with open(tmp_path / "a.pt", "wb") as file:
        file.write(b"PK\x03\x04")
        file.seek(claimed)
        file.write(end)
    states, why = inspect(tmp_path / "a.pt")
    assert states == () and "its directory is too large" in why


def test_states_of_fastseed_in_one_another(tmp_path):
    fastseed.init(42, rank=0, world_size=1)
    held = {"fastseed_rank_0": torch.get_rng_state()}
    for level in range(3):
        held = checkpoint.to_tensors(
            {**fastseed.state_dict(), "rng.0.torch.cpu": held.popitem()[1]}
        )
        torch.save(held, tmp_path / "a.pt")
        streams = [one.stream for one in inspect(tmp_path / "a.pt")[0]]
        assert streams == (["torch.cpu"] if level == 0 else [])


def test_entries_of_a_distributed_checkpoint_with_unusual_names(tmp_path):
    dcp.save({"rng": {"cpu": torch.get_rng_state()}}, checkpoint_id=tmp_path)
    metadata = (tmp_path / ".metadata").read_bytes()
    metadata = metadata.replace(b"\x95" + metadata[3:11], b"")
    name, key = b"\x8c\x0c__0_0.distcp", b"\x8c\x07rng.cpu"
    assert name in metadata and key in metadata
    long = b"X" + struct.pack("<I", 1001) + b"k" * 1001
    for old, new, text in (
        (name, b"\x8c\x03a\0b", "it cannot be opened"),
        (key, long, "its name has more than 1000 characters"),
    ):
        (tmp_path / ".metadata").write_bytes(metadata.replace(old, new))
        assert text in inspect(tmp_path)[1]
    for state in ({}, 5, None, []):
        properties = pickles.Opaque(("x", "p"))
        properties.state = state
        held = pickles.Opaque(("x", "t"))
        held.state = {
            "size": pickles.Opaque(("torch", "Size"), ((5,),)),
            "properties": properties,
        }
        assert not folders._may_hold_a_state(held)
