"""What fastseed.checkpoint.load refuses: each with the reason, and no generator has moved."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
import tracemalloc

import pytest
import torch
from helpers.jobs import draws, everything, start
from helpers.support import scramble, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

import fastseed
from fastseed.checkpoint import api as checkpoint
from fastseed.checkpoint import file_io, format


@pytest.fixture
def job():
    return start(rank=0, world_size=1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state"


def of_three():
    """The file of a job without registered generators."""
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 7, 9)
    scramble()
    return format.encode(fastseed.state_dict(rng=True), "0.1.0")


def refused(path, data, says):
    """That loading these bytes is refused with a reason, and moves nothing."""
    if data is not None:
        path.write_bytes(data)
    before = snapshot(), repr(fastseed.seeder.api._seeder)
    with pytest.raises(ValueError) as caught:
        checkpoint.load(path)
    assert says in str(caught.value), str(caught.value)
    assert str(caught.value).startswith("fastseed.")
    assert (snapshot(), repr(fastseed.seeder.api._seeder)) == before


def sealed(data):
    """With the length and the digest that belong to what was changed."""
    body = bytearray(data[:-32])
    struct.pack_into("<Q", body, 16, len(body) + 32)
    return bytes(body) + hashlib.sha256(body).digest()


# ---------------------------------------------------------------- damage


def test_every_single_bit_flip_is_refused():
    """All 61,872 of them; where the generators would be touched, below, some hundred."""
    data = bytearray(of_three())
    assert format.decode(bytes(data))
    before = snapshot()
    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            with pytest.raises(file_io.Damaged):
                format.decode(bytes(data))
            data[at] ^= 1 << bit
    assert snapshot() == before


def test_every_length_is_refused_but_the_whole():
    data = of_three()
    for length in range(len(data)):
        with pytest.raises(file_io.Damaged, match="must "):
            format.decode(data[:length])
    for more in range(1, 100):
        for tail in (bytes(more), data[:more], data[-more:]):
            with pytest.raises(file_io.Damaged, match="something was appended"):
                format.decode(data + tail)


def test_damaged_files_are_refused_and_move_nothing(path):
    data = of_three()
    for bit in range(0, 8 * len(data), 311):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        refused(path, changed, "path must be a checkpoint of fastseed, got ")
    for length in (*range(130), *range(130, len(data), 97)):
        refused(path, data[:length], "must ")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: b"", "it must begin with b'fastseed', got b''"),
        (lambda d: d[:4], "must hold 72 bytes at least, got 4: it was cut off"),
        (lambda d: d[:-1], "must hold 7734 bytes, got 7733: it was cut off"),
        (lambda d: d + b"x", "must hold 7734 bytes, got 7735: something was appended"),
        (lambda d: d[:-1] + bytes([d[-1] ^ 1]), "its checksum is wrong: it is damaged"),
        (lambda d: d[:500] + b"\n" + d[501:], "its checksum is wrong: it is damaged"),
        (lambda d: bytes(len(d)), "it must begin with b'fastseed', got b'\\x00"),
        (lambda d: d[:8] + bytes(len(d) - 8), "must hold 0 bytes, got 7734"),
        (lambda d: sealed(d[:8] + b"\2\0" + d[10:24] + b"0.9.1" + d[29:]),
         "its version must be 1, got 2: fastseed 0.9.1 or newer is needed"),
        (lambda d: sealed(d[:8] + b"\0\0" + d[10:]), "its version must be 1, got 0"),
        (lambda d: sealed(d[:10] + b"\2\0" + d[12:]), "state['derivation'] must be 1; a newer fa"),
        (lambda d: sealed(d[:12] + b"\4" + d[13:]), "it must hold 4 exact states, got 3"),
        (lambda d: sealed(d[:12] + b"\2" + d[13:]), "its exact states must end at byte 7702, got"),
        (lambda d: sealed(d[:12] + b"\xff" * 4 + d[16:]), "it must hold 4294967295 exact states"),
        (lambda d: sealed(d[:60] + b"\0\0\0\1" + d[64:]), "state['task'] must be in [0, 16777215]"),
        (lambda d: sealed(d[:64] + b"\0\0\0\0" + d[68:]), "state['world_size'] must be in [1, "),
        (lambda d: sealed(d[:68] + b"\2" + d[69:]), "state['reseeded'] must be in [0, 1], got 2"),
        (lambda d: sealed(d[:72] + b"x" + d[73:]), "state['scheme'] must be 'philox-v1'"),
        (lambda d: sealed(d[:88] + b"\1" + d[89:]), "'rng.<rank below 1>.<name>', got 'rng.1.pyth"),
        (lambda d: sealed(d[:92] + b"\xff\xff" + d[94:]), "an exact state must end before byte"),
        (lambda d: sealed(d[:94] + b"\xff" * 8 + d[102:]), "an exact state must end before byte"),
        (lambda d: sealed(d[:102] + b"\xff" + d[103:]), "names must be UTF-8"),
        (lambda d: sealed(d[:102] + b"q" + d[103:]), "'qython'"),
        (lambda d: sealed(d[:40] + d[-32:]), "it must hold 120 bytes at least, got 72"),
        (lambda d: sealed(d[:108] + bytes(2496) + d[2604:]), "MT19937 words must not be all zero"),
        (lambda d: sealed(d[:12] + b"\6" + d[13:88] + d[88:-32] + d[88:]), "each exact state once"),
    ],
)  # fmt: skip
def test_reasons(path, change, says):
    data = of_three()
    assert len(data) == 7734
    changed = change(data)
    if "'qython'" in says:
        says = "state must hold exact states of all of"
    refused(path, changed, says)


def test_a_file_of_another_job_names_what_is_missing(job, path):
    checkpoint.save(path)
    fastseed.init(42, rank=0, world_size=1)
    refused(path, None, "state['rng.0.new'] belongs to a generator that must be registered")


def test_devices_that_are_absent(job, path):
    state = {**fastseed.state_dict(rng=True), "rng.0.torch.xpu": torch.zeros(16, dtype=torch.uint8)}
    if torch.xpu.is_available():
        pytest.skip("this device is here")
    before = everything(job)
    refused(path, format.encode(state, "x"), "that this process does not have; load")
    assert everything(job) == before


# ---------------------------------------------------------------- pickles


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("how", ["torch", "old torch", "pickle"])
def test_malicious_pickles_are_refused_and_not_run(path, tmp_path, how):
    of_three()
    sprung = tmp_path / "sprung"
    file = io.BytesIO()
    if how == "pickle":
        pickle.dump(Trap(sprung), file)
    else:
        torch.save({"x": Trap(sprung)}, file, _use_new_zipfile_serialization=how == "torch")
    says = "for a file of torch.save: torch.load, then load_state_dict"
    refused(path, file.getvalue(), says)
    # The same as the state of a generator: bytes, whatever they spell.
    held = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    state = {**fastseed.state_dict(rng=True), "rng.0.numpy": held}
    refused(path, format.encode(state, "x"), "state['rng.0.numpy'] is damaged")
    assert not sprung.exists()
    file.seek(0)
    torch.load(file, weights_only=False) if how != "pickle" else pickle.load(file)
    assert sprung.exists(), "the trap would have sprung"


def test_no_module_of_ours_knows_pickle():
    import ast
    from pathlib import Path

    folder = Path(fastseed.__file__).parent
    for name in ("states", "sinks", "numpy_sinks", "process", "checkpoint", "checkpoint_files",
                 "checkpoint_format", "checkpoint_ranks"):  # fmt: skip
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            said = {getattr(node, f, None) for f in ("id", "attr", "name", "module", "arg")}
            objects = {"all_gather_object", "gather_object", "broadcast_object_list"}
            banned = {"pickle", "eval", "exec", "marshal", "shelve", *objects}
            assert not said & banned, (name, ast.dump(node))


# ---------------------------------------------------------------- sizes that lie


@pytest.mark.parametrize("claim", [2**31, 2**63, 2**64 - 1])
def test_claims_of_size_allocate_nothing(path, claim):
    data = bytearray(of_three())
    struct.pack_into("<Q", data, 16, claim)
    tracemalloc.start()
    try:
        refused(path, data, f"it must hold {claim} bytes, got 7734: it was cut off")
        struct.pack_into("<Q", data, 94, claim)  # of an exact state
        refused(path, sealed(data), "an exact state must end before byte")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_large_file_is_not_read_before_its_checksum_was(path):
    """A hole of 300 MB that says of itself that it has 300 MB."""
    size = 300 * 2**20
    start = bytearray(of_three()[:400])
    struct.pack_into("<Q", start, 16, size)
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(size)
    tracemalloc.start()
    try:
        refused(path, None, "its checksum is wrong: it is damaged")
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_a_large_file_is_read(path):
    fastseed.init(42, rank=0, world_size=1)
    bank = fastseed.random.StreamBank(1_000_000)
    fastseed.register_generator(bank)
    fastseed.reseed(1)
    expected = bank.states()
    checkpoint.save(path)
    assert path.stat().st_size > 24e6
    fastseed.reseed(2)
    checkpoint.load(path)
    assert torch.equal(bank.states(), expected)


# ---------------------------------------------------------------- right checksums, wrong content

values = st.one_of(
    st.integers(-1, 2**24), st.sampled_from([2**64 - 1, 2**64, None, True, 1.5, "", "philox-v1"])
)
states_bytes = st.binary(max_size=40).map(lambda b: torch.tensor(list(b), dtype=torch.uint8))
fields = ("format", "version", "derivation", "scheme", "master_seed", "world_size", "reseeded",
          "task", "epoch", "step", "rng.0.python", "rng.0.numpy", "rng.0.torch.cpu", "rng.0.x",
          "rng.0.new", "rng.0.pool", "rng.1.python", "rng.", "other")  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    changes=st.dictionaries(
        st.sampled_from(fields), st.one_of(values, states_bytes, st.just(...)), min_size=1
    )
)
def test_whatever_is_refused_moves_nothing(changes):
    job = start(rank=0, world_size=1)
    state = fastseed.state_dict(rng=True)
    draws(job)
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
    else:  # then it is what a job could have been in
        held = fastseed.state_dict()
        assert all(held[field] == state[field] for field in held if field != "world_size")


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(8, 7701), st.binary(min_size=1, max_size=9)), max_size=4)
)
def test_bytes_with_a_right_checksum_are_refused_or_loaded_as_a_whole(changes):
    data = of_three()
    changed = bytearray(data[:-32])
    for at, piece in changes:
        at = 8 + at % 120 if at % 3 else at  # where it matters
        changed[at : at + len(piece)] = piece[: len(changed) - at]
    changed = sealed(changed + bytes(32))
    fastseed.reseed(2)
    before = snapshot(), repr(fastseed.seeder.api._seeder)
    try:
        state = format.decode(changed)
        fastseed.load_state_dict(state)
    except (TypeError, ValueError):
        assert (snapshot(), repr(fastseed.seeder.api._seeder)) == before
    else:
        held = fastseed.state_dict(rng=True)
        for field in held:
            same = held[field] == state.get(field, held[field])
            assert field == "world_size" or (same if isinstance(same, bool) else bool(same.all()))
