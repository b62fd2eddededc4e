"""Input that is meant to break something: it is refused, or does what it says, and nothing else."""

import json

import numpy as np
import pytest
import torch
from helpers.paths import ROOT, SCRIPTS
from helpers.processes import Script

import fastseed


def test_small_numpy_integers_are_sizes_of_any_size():
    """They must not be multiplied in their own eight bits."""
    keys = torch.zeros(1, 2, dtype=torch.uint64)
    assert fastseed.random.uniform(keys, (np.uint8(20), np.uint8(20))).shape == (1, 20, 20)
    bank = fastseed.random.StreamBank(2, "bank")
    bank.reseed_from_seeds([1, 2])
    fastseed.random.uniform(bank, np.uint8(254))
    fastseed.random.uniform(bank, tuple(np.array([200, 200], np.int16)))
    assert bank.positions.tolist() == [256 + 40_000] * 2


def test_a_philox_state_must_not_point_beyond_its_buffer():
    """NumPy takes it, and reads there at the next draw."""
    fastseed.init(1)
    generator = np.random.Generator(np.random.Philox(3))
    fastseed.register_generator(generator, name="g")
    fastseed.reseed(0)
    state = fastseed.state_dict(rng=True)
    for name in [key for key in state if key.startswith("rng.") and key.endswith(".g")]:
        whole = state[name].numpy().tobytes()
        head = whole[: whole.index(b"{")]
        held = json.loads(whole[len(head) :])
        assert held["buffer_pos"] in range(5)
        held["buffer_pos"] = -(10**9)
        data = (head + json.dumps(held).encode()).ljust(len(whole))
        state[name] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    before = generator.bit_generator.state
    with pytest.raises(ValueError, match="Philox"):
        fastseed.load_state_dict(state)
    assert repr(generator.bit_generator.state) == repr(before)


def test_a_callable_must_not_reseed_what_reseeds_it():
    fastseed.init(1)
    fastseed.register_generator(lambda seed: fastseed.reseed(0), name="f")
    with pytest.raises(fastseed.ReseedError, match="must not be called by a generator") as caught:
        fastseed.reseed(2)
    assert isinstance(caught.value.failures["f"], RuntimeError)
    assert len(str(caught.value)) < 1000


def test_numpy_integers_serve_as_master_seed_and_key():
    fastseed.init(1)
    state = fastseed.state_dict()
    state["master_seed"] = np.int64(7)
    fastseed.load_state_dict(state)
    assert fastseed.derive_key("a", task=0) == fastseed.Seeder(7, rank=0, world_size=1).derive_key(
        "a", task=0
    )
    for key in (np.int64(5), np.uint64(5), np.uint8(5)):
        ours = fastseed.random.normal_(torch.empty(9), key)
        assert torch.equal(ours, fastseed.random.normal_(torch.empty(9), 5))


def test_a_bank_made_in_inference_mode_draws_everywhere():
    with torch.inference_mode():
        bank = fastseed.random.StreamBank(3, "bank")
        bank.reseed_from_seeds([1, 2, 3])
        first = fastseed.random.uniform(bank, 2)
    second = fastseed.random.uniform(bank, 2)
    twin = fastseed.random.StreamBank(3, "bank")
    twin.reseed_from_seeds([1, 2, 3])
    for drawn in (first, second):
        assert torch.equal(drawn, fastseed.random.uniform(twin, 2))


@pytest.mark.parametrize(
    ("seed", "calls"), [(0, 300), pytest.param(1, 2500, marks=pytest.mark.slow)]
)
def test_hostile_calls_are_refused_and_change_nothing(seed, calls):
    """In child processes, one after the other: a call that ends its process is named."""
    done = Script(SCRIPTS / "fuzz_calls.py", seed, calls).wait(timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"seed {found['seed']}, {found['calls']} calls, {found['seconds']} s")
    for kind in ("crashes", "hangs", "internal", "unclear", "changed", "silent"):
        assert found[kind] == [], kind
    assert found["refused"] > calls / 3
    assert calls < 2000 or len(found["never_called"]) < 10


@pytest.mark.slow
def test_sequences_of_calls_blocks_failures_and_interrupts_are_as_a_model_says():
    done = Script(ROOT / "tests/statistics/hostile.py", 1, 2000).wait(timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == [] and found["operations"] == 2000
    assert len(found["made"]) > 13 and min(found["made"].values()) > 5  # each kind, interrupts too
