"""StreamBank's state, its copies, and its life among the generators that a seeder reseeds."""

import copy
import pickle

import pytest
import torch
from helpers.draws import bank_of, contents
from helpers.support import saved_and_loaded, scramble, snapshot

import fastseed
from fastseed.random import StreamBank
from fastseed.seeder.registry import adapter_for


def as_ints(keys):
    return [lo | hi << 64 for lo, hi in keys.tolist()]


@pytest.mark.parametrize("n", [0, 1, 7])
def test_state_round_trip(n):
    bank = bank_of(n)
    fastseed.random.uniform(bank[torch.arange(n) % 2 == 0], 5)
    state = saved_and_loaded(bank.state_dict())
    expected = fastseed.random.normal(bank, 3)
    bank.reseed(2)
    where = bank.keys.data_ptr()
    assert bank.load_state_dict(state) is None
    assert torch.equal(fastseed.random.normal(bank, 3), expected) and bank.keys.data_ptr() == where


def test_state_of_a_bank_without_keys():
    state = StreamBank(3, "b").state_dict()
    bank = bank_of(3)
    bank.load_state_dict(state)
    with pytest.raises(RuntimeError, match="no keys yet"):
        fastseed.random.uniform(bank, 1)


def test_an_interrupted_load_leaves_a_bank_without_keys(monkeypatch):
    bank, copy_, calls = bank_of(3), torch.Tensor.copy_, []

    def interrupted(tensor, source):
        calls.append(tensor)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return copy_(tensor, source)

    monkeypatch.setattr(torch.Tensor, "copy_", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bank.load_state_dict(bank_of(3).state_dict())
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="no keys yet"):
        fastseed.random.uniform(bank, 1)


FOURS = torch.full((73,), 4, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"format": "fastseed"}, ValueError, r"state\['format'\] must be 'fastseed.StreamBank'"),
        ({"version": 2}, ValueError, r"state\['version'\] must be 1, got 2"),
        ({"name": "c"}, ValueError, r"state\['name'\] must be 'b', got 'c'"),
        ({"n": 4}, ValueError, r"state\['n'\] must be 3, got 4"),
        ({"more": 1}, ValueError, "state must be a dict of format, .*, got .*more"),
        ({"states": None}, TypeError, r"state\['states'\] must be a tensor, got None"),
        ({"states": torch.zeros(73)}, ValueError, r"state\['states'\] is invalid: .*torch.uint8"),
        ({"states": FOURS.to("meta")}, ValueError, "states must have data, got a meta tensor"),
        ({"states": FOURS[1:]}, ValueError, "is invalid: it must be 73 bytes, got 72"),
        ({"states": torch.cat([FOURS, FOURS[1:]])}, ValueError, "must be 73 bytes, got 145"),
    ],
)
def test_damaged_states_are_refused_and_nothing_changes(change, error, says):
    bank = bank_of(3)
    state = bank.state_dict()
    fastseed.random.uniform(bank, 7)
    before = contents(bank)
    with pytest.raises(error, match=r"^fastseed\.random\.StreamBank\.load_state_dict: .*" + says):
        bank.load_state_dict({**state, **change})
    assert contents(bank) == before


def test_copies_and_pickles_go_on_alone():
    bank = bank_of(3)
    fastseed.random.uniform(bank, 5)
    others = [copy.deepcopy(bank), pickle.loads(pickle.dumps(bank))]
    for other in others:
        assert other.keys.dtype == torch.uint64 and contents(other) == contents(bank)
        before = contents(bank)
        other.reseed(2)
        assert contents(bank) == before
    expected = fastseed.random.normal(copy.deepcopy(bank), 4)
    assert torch.equal(fastseed.random.normal(bank, 4), expected)


def test_bank_as_a_collection():
    bank = StreamBank(3, "mine")
    assert (len(bank), bank.name, bank.device) == (3, "mine", torch.device("cpu"))
    assert repr(bank) == "StreamBank(3, device='cpu', name='mine', no keys yet)"
    bank.reseed_from_seeds([1, 2, 3])
    assert repr(bank) == "StreamBank(3, device='cpu', name='mine')"
    for name in ("keys", "positions", "name"):
        with pytest.raises(AttributeError):
            setattr(bank, name, None)
    with torch.device("meta"):
        assert StreamBank(3, "bank").device.type == "cpu"


def test_a_registered_bank_follows_the_job():
    fastseed.init(42, rank=3, world_size=8)
    own, shared = StreamBank(4, "own"), StreamBank(2, "all")
    assert adapter_for(own).target is own
    fastseed.register_generator(own)
    fastseed.register_generator(shared, shared=True)
    fastseed.reseed(1, 7, 9)
    at = {"task": 1, "epoch": 7, "step": 9}
    for bank, name in ((own, "own"), (shared, "all")):
        rank = fastseed.SHARED if bank is shared else 3
        expected = [fastseed.derive_key(name, index=i, rank=rank, **at) for i in range(len(bank))]
        assert as_ints(bank.keys) == expected and not bank.positions.any()
    fastseed.random.uniform(own, 3)
    fastseed.reseed(1, 8)
    assert not own.positions.any()
    keys = own.keys.clone()
    fastseed.unregister_generator(own)
    fastseed.reseed(1, 9)
    assert torch.equal(own.keys, keys)
    with pytest.raises(
        ValueError, match="generator must be a registered generator, got StreamBank"
    ):
        fastseed.unregister_generator(own)


def test_registration_is_refused_as_for_pools():
    fastseed.init(42)
    with pytest.raises(ValueError, match="name must be left out, or 'a', the name of the gen"):
        fastseed.register_generator(StreamBank(1, "a"), name="b")
    fastseed.register_generator(StreamBank(1, "a"))
    with pytest.raises(ValueError, match="name must be one that is not registered yet"):
        fastseed.register_generator(StreamBank(2, "a"))


def test_checkpoints_hold_exact_states():
    fastseed.init(42, rank=3, world_size=8)
    bank = StreamBank(5, "bank")
    fastseed.register_generator(bank)
    fastseed.reseed(1, 7)
    fastseed.random.uniform(bank[torch.tensor([1, 3])], 9)
    state = saved_and_loaded(fastseed.state_dict(rng=True))
    held = state["rng.3.bank"]
    assert (held.dtype, held.shape) == (torch.uint8, (24 * 5 + 1,))
    expected = fastseed.random.normal(bank, 3), torch.rand(3)
    scramble()
    fastseed.reseed(2)
    fastseed.load_state_dict(state)
    assert torch.equal(fastseed.random.normal(bank, 3), expected[0]) and torch.equal(
        torch.rand(3), expected[1]
    )
    fastseed.random.uniform(bank, 1)
    fastseed.load_state_dict(fastseed.state_dict())  # coordinates alone: the beginning of the scope
    assert not bank.positions.any()


def test_damaged_checkpoints_are_refused_and_nothing_changes():
    fastseed.init(42, rank=0, world_size=1)
    bank = StreamBank(3, "bank")
    fastseed.register_generator(bank)
    fastseed.reseed(1, 7)
    state = fastseed.state_dict(rng=True)
    fastseed.random.uniform(bank, 3)
    before = contents(bank), snapshot()
    state["rng.0.bank"] = state["rng.0.bank"][:-1]
    says = r"state\['rng.0.bank'\] is damaged: it must be 73 bytes, got 72"
    with pytest.raises(ValueError, match=says):
        fastseed.load_state_dict(state)
    assert (contents(bank), snapshot()) == before
