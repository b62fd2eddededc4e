"""Bytes of a checkpoint: the layout, and that damaged or hostile bytes change no generator."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle

import pytest
import torch
from helpers.jobs import everything, start
from helpers.support import scramble, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

import fastseed
from fastseed.checkpoint import format as file_format


def saved() -> bytes:
    """The bytes of a job without registered generators."""
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 7, 9)
    scramble()
    return file_format.encode("test", fastseed.state_dict(rng=True), "0.1.0")


def sealed(header: object, tensors: bytes = b"") -> bytes:
    """Bytes with a correct checksum and any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    whole = b"fastseed" + len(text).to_bytes(8, "little") + text + tensors
    return whole + hashlib.sha256(whole).digest()


def header_of(data: bytes) -> dict:
    length = int.from_bytes(data[8:16], "little")
    return json.loads(data[16 : 16 + length])


def assert_refused(path, data: bytes, reason: str) -> None:
    path.write_bytes(data)
    before = snapshot(), repr(fastseed.derivation.context.seeder)
    with pytest.raises(ValueError) as caught:
        fastseed.checkpoint.load(path)
    text = str(caught.value)
    assert text.startswith("fastseed.") and reason in text, text
    assert text.isprintable()
    assert (snapshot(), repr(fastseed.derivation.context.seeder)) == before


def test_layout_is_the_documented_one():
    data = saved()
    header = header_of(data)
    assert header["version"] == 1 and header["writer"] == "0.1.0"
    state = fastseed.state_dict(rng=True)
    assert header["state"] == {k: v for k, v in state.items() if not k.startswith("rng.")}
    at = 16 + int.from_bytes(data[8:16], "little")
    for key, length in header["tensors"].items():
        assert data[at : at + length] == state[key].numpy().tobytes()
        at += length
    assert data[at:] == hashlib.sha256(data[:at]).digest()


def test_size_does_not_depend_on_values():
    """A distributed checkpoint is loaded into tensors of the sizes of the current state."""
    sizes = set()
    for master_seed, where in ((0, (0, 0, 0)), (2**64 - 1, (2**24 - 1, 2**32 - 1, 2**64 - 1))):
        fastseed.init(master_seed, rank=0, world_size=1)
        sizes.add(len(file_format.encode("test", fastseed.state_dict(), "1")))
        fastseed.reseed(*where)
        sizes.add(len(file_format.encode("test", fastseed.state_dict(), "1")))
    assert len(sizes) == 1


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


def test_every_bit_of_the_header_is_covered():
    whole = bytearray(saved())
    for bit in range(8 * 400):
        whole[bit // 8] ^= 1 << bit % 8
        with pytest.raises(file_format.Damaged):
            file_format.decode(bytes(whole))
        whole[bit // 8] ^= 1 << bit % 8
    assert file_format.decode(bytes(whole))


STATE = {
    "format": "fastseed", "version": 1, "derivation": 1, "scheme": "philox-v1", "master_seed": 42,
    "world_size": 1, "reseeded": 1, "task": 1, "epoch": 7, "step": 9,
}  # fmt: skip
GLOBAL = ["rng.0.python", "rng.0.numpy", "rng.0.torch.cpu"]
HEAD = {"version": 1, "writer": "0.1.0", "state": STATE, "tensors": {}}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it does not begin as a checkpoint of fastseed, but b''"),
        (b"fastseed", "it does not begin as a checkpoint"),
        (bytes(100), "it does not begin as a checkpoint"),
        (sealed(HEAD) + b"x", "checksum mismatch"),
        (sealed(HEAD)[:-1], "checksum mismatch"),
        (sealed({**HEAD, "version": 2, "writer": "\x1b[31m9.1"}), r"fastseed '\x1b[31m9.1'"),
        (sealed(b"{"), "the header is not one of this format"),
        (sealed(b"[]"), "the header is not one of this format"),
        (sealed(b'{"version":1,"version":1}'), "duplicate keys"),
        (sealed(b"[" * 100_000), "nested less deeply"),
        (sealed({"version": 1, "writer": ""}), "the header is not one of this format"),
        (sealed({**HEAD, "state": 5}), "the header is not one of this format"),
        (sealed({**HEAD, "state": {**STATE, "task": 1.5}}), "must hold integers and strings"),
        (sealed({**HEAD, "state": {**STATE, "task": True}}), "must hold integers and strings"),
        (sealed({**HEAD, "tensors": {"rng.0.x": 2**63}}), "must end where the checksum begins"),
        (sealed({**HEAD, "tensors": {"rng.0.x": -1}}, b""), "must be integers from 0 on"),
        (sealed({**HEAD, "tensors": {"rng.0.x": "3"}}, b"abc"), "must be integers from 0 on"),
        (sealed(HEAD, b"abc"), "must end where the checksum begins"),
        (sealed({**HEAD, "state": {**STATE, "derivation": 9}}), "state['derivation'] must be"),
        (sealed({**HEAD, "state": {**STATE, "task": -1}}), "task"),
        (sealed({**HEAD, "state": {**STATE, "\x1b[31m": 1}}), r"\x1b[31m"),
        (sealed({**HEAD, "tensors": {"rng.0.\x1b[2J": 0}}), r"\x1b[2J"),
        (sealed({**HEAD, "tensors": {"rng.1.python": 0}}), "rng.1.python"),
        (
            sealed(
                {**HEAD, "tensors": {f"rng.0.{n}": 0 for n in ("python", "numpy", "torch.cpu")}}
            ),
            "rng.0.",
        ),
    ],
)
def test_reasons(tmp_path, data, reason):
    saved()
    assert_refused(tmp_path / "state", data, reason)


def test_a_file_of_another_job_names_what_is_missing(tmp_path):
    job = start(rank=0, world_size=1)
    fastseed.checkpoint.save(tmp_path / "state")
    fastseed.init(42, rank=0, world_size=1)
    before = everything(job)
    with pytest.raises(ValueError, match=r"rng.0.new'?\]"):
        fastseed.checkpoint.load(tmp_path / "state")
    assert everything(job) == before


class Trap:
    """An object whose unpickling makes a folder."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("how", ["torch", "old torch", "pickle"])
def test_malicious_pickles_are_refused_and_not_run(tmp_path, how):
    saved()
    sprung = tmp_path / "sprung"
    file = io.BytesIO()
    if how == "pickle":
        pickle.dump(Trap(sprung), file)
    else:
        torch.save({"x": Trap(sprung)}, file, _use_new_zipfile_serialization=how == "torch")
    assert_refused(tmp_path / "state", file.getvalue(), "use torch.load and fastseed.load_state")
    held = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    state = {**fastseed.state_dict(rng=True), "rng.0.numpy": held}
    assert_refused(tmp_path / "state", file_format.encode("test", state, "x"), "rng.0.numpy")
    assert not sprung.exists()


@settings(max_examples=100, deadline=None)
@given(
    changes=st.dictionaries(
        st.sampled_from([*STATE, "rng.0.python", "rng.0.numpy", "rng.0.x", "rng.1.python", "rng."]),
        st.one_of(
            st.integers(-1, 2**24),
            st.sampled_from([2**64 - 1, 2**64, None, True, 1.5, "", "philox-v1", ...]),
            st.binary(max_size=40).map(lambda b: torch.tensor(list(b), dtype=torch.uint8)),
        ),
        min_size=1,
    )
)
def test_a_state_that_is_refused_changes_nothing(changes):
    job = start(rank=0, world_size=1)
    state = fastseed.state_dict(rng=True)
    for field, value in changes.items():
        if value is ...:
            state.pop(field, None)
        else:
            state[field] = value
    before = everything(job)
    try:
        fastseed.load_state_dict(state)
    except (TypeError, ValueError) as error:
        assert str(error).startswith("fastseed.load_state_dict: state")
        assert everything(job) == before
    else:  # a state that the job could have been in
        held = fastseed.state_dict()
        assert all(held[field] == state[field] for field in held if field != "world_size")
