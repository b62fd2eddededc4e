"""init and reseed: what every global generator gets, and what it does not depend on."""

import importlib
import inspect
import logging
import random
import secrets

import numpy as np
import pytest
import torch
from helpers.support import LOW64, holds_key, reference_key, scramble, seeder, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

import fastseed
import fastseed.pyt
from fastseed._backend import derive


@pytest.mark.parametrize(
    ("task", "epoch", "step"), [(1, 7, 0), (0, 0, 0), (2**24 - 1, 2**32 - 1, 2**64 - 1)]
)
def test_reseed_gives_each_library_its_documented_state(task, epoch, step):
    scramble()
    seeder(42, rank=3, world_size=8).reseed(task, epoch, step)
    at = {"task": task, "epoch": epoch, "step": step}

    reference = random.Random(reference_key("python", **at))
    assert random.getstate() == reference.getstate()

    numpy = np.random.get_state(legacy=False)
    assert np.array_equal(numpy["state"]["key"], derive.mt19937_state(reference_key("numpy", **at)))
    assert (numpy["state"]["pos"], numpy["has_gauss"]) == (624, 0)

    assert holds_key(torch.default_generator, reference_key("torch.cpu", **at))
    assert torch.initial_seed() == reference_key("torch.cpu", **at) & LOW64


@pytest.mark.parametrize(("name", "bits"), [("task", 24), ("epoch", 32), ("step", 64)])
def test_reseed_refuses_coordinates_beyond_their_bits(name, bits):
    for value in (-1, 2**bits):
        with pytest.raises(
            ValueError, match=f"{name} must be in \\[0, {2**bits - 1}\\], got {value}"
        ):
            seeder().reseed(**{"task": 1, name: value})


def test_reseed_clears_every_cached_gaussian():
    s = seeder()
    s.reseed(1, 5)
    clean = snapshot()
    normals = random.gauss(0, 1), np.random.standard_normal(), torch.randn(3).tolist()
    for cached in (False, True):
        if cached:
            scramble()
        s.reseed(1, 5)
        assert snapshot() == clean
        assert normals == (random.gauss(0, 1), np.random.standard_normal(), torch.randn(3).tolist())


coordinates = st.tuples(
    st.integers(0, 2**24 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
)


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**64 - 1), coordinates, coordinates)
def test_reseed_is_a_pure_function_of_its_coordinates(master, at, elsewhere):
    s = seeder(master)
    s.reseed(*at)
    once = snapshot()
    s.reseed(*elsewhere)
    assert (snapshot() == once) == (at == elsewhere)
    random.random(), np.random.random(5), torch.rand(5)
    s.reseed(*at)
    assert snapshot() == once


def test_reseed_does_not_depend_on_world_size():
    states = []
    for world_size in (4, 5, 4096):
        seeder(42, rank=3, world_size=world_size).reseed(1, 2)
        states.append(snapshot())
    assert states[0] == states[1] == states[2]


def test_reseed_leaves_other_generators_alone():
    mine, theirs = torch.Generator().manual_seed(5), np.random.default_rng(5)
    before = mine.get_state(), theirs.bit_generator.state
    seeder().reseed(1, 1)
    assert torch.equal(before[0], mine.get_state())
    assert before[1] == theirs.bit_generator.state


def test_seeder_attributes():
    s = seeder(7, rank=1, world_size=3)
    assert (s.master_seed, s.rank, s.world_size) == (7, 1, 3)
    assert s.scope is None
    s.reseed(2, 3, 4)
    assert tuple(s.scope) == (2, 3, 4)
    shown = repr(s)
    for part in ("master_seed=7", "rank=1", "world_size=3", "task=2", "epoch=3", "step=4"):
        assert part in shown


def test_drop_in_signatures_start_like_the_predecessor():
    """Names, order and defaults of what a script may pass by position."""
    import fwr13y.seeder.pyt as original

    for name in (
        "init", "reseed", "get_master_seed", "register_generator", "unregister_generator",
    ):  # fmt: skip
        theirs = list(inspect.signature(getattr(original, name)).parameters.values())
        for module in (fastseed, fastseed.pyt):
            ours = list(inspect.signature(getattr(module, name)).parameters.values())
            for old, new in zip(theirs, ours, strict=False):
                spelled = old.name
                if module is fastseed and spelled == "gen":  # scripts pass it by position
                    spelled = "generator"
                assert (spelled, old.kind) == (new.name, new.kind), name
                assert old.default in (inspect.Parameter.empty, new.default), name
            for new in ours[len(theirs) :]:
                is_optional = new.default is not inspect.Parameter.empty
                assert is_optional or new.kind is inspect.Parameter.VAR_KEYWORD, name


def test_pyt_has_the_seeder_of_the_process():
    old = importlib.import_module("fastseed.pyt")
    seeds: list[int] = []
    old.init(6)
    assert fastseed.get_master_seed() == old.get_master_seed() == 6
    old.register_generator(gen=seeds.append)
    old.reseed(1, 2)
    assert seeds == [fastseed.derive_seed("generator/0", bits=31)]
    assert fastseed.derivation.context.seeder.scope == (1, 2, 0)
    old.unregister_generator(gen=seeds.append)
    fastseed.reseed(1, 3)
    assert len(seeds) == 1


def test_refused_init_keeps_the_old_seeder():
    fastseed.init(1)
    with pytest.raises(ValueError, match="master_seed"):
        fastseed.init(-1)
    assert fastseed.get_master_seed() == 1


def test_master_seed_none_is_drawn_from_the_system(monkeypatch):
    asked = []
    monkeypatch.setattr(secrets, "randbits", lambda bits: asked.append(bits) or 12345)
    before = snapshot()
    fastseed.Seeder(rank=0, world_size=1)
    assert snapshot() == before
    fastseed.init()
    assert fastseed.get_master_seed() == 12345
    assert asked == [63, 63]


@pytest.mark.parametrize("rank", [0, 1])
def test_init_logs_one_line_on_rank_zero(caplog, rank):
    with caplog.at_level(logging.INFO, logger="fastseed"):
        fastseed.init(42, rank=rank, world_size=2)
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("fastseed")]
    assert len(lines) == (rank == 0)
    assert all("42" in line and fastseed.build_info()["backend"] in line for line in lines)


def test_key_is_a_pure_look_up():
    s = seeder(42, rank=3, world_size=8)
    before = snapshot()
    key = s.derive_key("numpy", task=1, epoch=7, worker=1, index=5)
    assert key == 0x1349FD8E6623705EF810968FF5BFC049
    assert s.derive_seed("numpy", task=1, epoch=7, worker=1, index=5) == key & LOW64
    assert snapshot() == before and s.scope is None


def test_key_of_a_shared_name_is_the_shared_one():
    s = seeder(42, rank=3, world_size=8)
    s.register_generator(lambda seed: None, shared=True, name="torch.cuda.mine")
    shared = reference_key("torch.cuda.mine", rank=fastseed.SHARED)
    assert s.derive_key("torch.cuda.mine", task=1, epoch=7) == shared
    assert s.derive_key("torch.cuda.mine", task=1, epoch=7, rank=3) == reference_key(
        "torch.cuda.mine"
    )
    assert (
        s.derive_key("torch.cuda", task=1, epoch=7, rank=fastseed.SHARED)
        == 0x7CCD36F7201A81AE4FCC0B77EBD8D1F5
    )


def test_look_ups_follow_the_seeder():
    """Nothing is remembered from before a registration, a loaded state or another master seed."""
    s = seeder(42, rank=3, world_size=8)
    own, shared = reference_key("x"), reference_key("x", rank=fastseed.SHARED)
    gen = [].append
    assert s.derive_key("x", task=1, epoch=7) == own
    s.register_generator(gen, shared=True, name="x")
    assert s.derive_key("x", task=1, epoch=7) == shared
    s.unregister_generator(gen)
    assert s.derive_key("x", task=1, epoch=7) == own
    s.load_state_dict(seeder(43, rank=3, world_size=8).state_dict())
    assert s.derive_key("x", task=1, epoch=7) == reference_key("x", master=43)


def test_derive_functions_take_the_scope_of_the_last_reseed():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.derivation.context.set_current(seeder(42))
    with pytest.raises(RuntimeError, match=r"derive_key: call fastseed\.reseed"):
        fastseed.derive_key("x")
    fastseed.reseed(3, 4, 5)
    at = {"task": 3, "epoch": 4, "step": 5}
    assert fastseed.derive_key("x") == fastseed.derive_key("x", **at)
    assert fastseed.derive_seed("x") == fastseed.derive_seed("x", **at)
    assert torch.equal(fastseed.derive_keys("x", 2), fastseed.derive_keys("x", 2, **at))
    assert torch.equal(fastseed.derive_seeds("x", 2), fastseed.derive_seeds("x", 2, **at))
    with pytest.raises(ValueError, match="task must be given together with epoch and step"):
        fastseed.derive_key("x", epoch=4)


@pytest.mark.parametrize("name", ["epoch", "step"])
def test_a_scope_of_no_integer_is_refused_without_a_task(name):
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 2)
    for value in (torch.ones(2), np.zeros(2), None):
        with pytest.raises(TypeError, match=rf"derive_key: {name} must be an integer"):
            fastseed.derive_key("x", **{name: value})
    assert fastseed.derive_key("x", **{name: np.int64(0)}) == fastseed.derive_key("x")


@pytest.mark.parametrize("bits", [31, 32, 63, 64])
def test_the_seed_of_a_registered_callable_can_be_derived(bits):
    fastseed.init(42, rank=3, world_size=8)
    seen = []
    fastseed.register_generator(seen.append, name="f", bits=bits)
    fastseed.reseed(1, 7)
    assert seen == [fastseed.derive_seed("f", bits=bits)]


def test_a_load_that_is_interrupted_leaves_the_place(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    s, other = seeder(), seeder(7)
    s.reseed(1)
    other.reseed(2)
    place = s.place
    monkeypatch.setattr(s.generators, "reseed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        s.load_state_dict(other.state_dict())
    assert s.place is place
