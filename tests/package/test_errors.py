"""Refused arguments, the texts of errors, and the state after a failure."""

import contextlib
import copy
import gc
import logging
import tracemalloc
import weakref

import numpy as np
import pytest
import torch
from helpers.support import reference_narrow_seed, run_script, scramble, seeder, snapshot

import fastseed
from fastseed import debug
from fastseed._backend import native
from fastseed.seeder import recent_scopes

CALLS = {
    "get_master_seed": lambda: fastseed.get_master_seed(),
    "reseed": lambda: fastseed.reseed(0),
    "register_generator": lambda: fastseed.register_generator(print),
    "unregister_generator": lambda: fastseed.unregister_generator(print),
    "derive_key": lambda: fastseed.derive_key("x", task=1),
    "derive_seed": lambda: fastseed.derive_seed("x", task=1),
    "derive_keys": lambda: fastseed.derive_keys("x", 1, task=1),
    "derive_seeds": lambda: fastseed.derive_seeds("x", 1, task=1),
    "state_dict": lambda: fastseed.state_dict(),
    "load_state_dict": lambda: fastseed.load_state_dict({}),
}


@pytest.mark.parametrize("function", CALLS)
def test_before_init_every_function_says_to_call_it(function):
    before = snapshot()
    with pytest.raises(RuntimeError) as caught:
        CALLS[function]()
    assert str(caught.value) == f"fastseed.{function}: call fastseed.init(...) first"
    assert snapshot() == before


TOPS = {"task": 2**24 - 1, "epoch": 2**32 - 1, "step": 2**64 - 1}


@pytest.mark.parametrize("name", TOPS)
def test_coordinates_out_of_range_reseed_nothing(name):
    fastseed.init(42, rank=3, world_size=8)
    seen = []
    fastseed.register_generator(seen.append)
    fastseed.reseed(1, 1)
    scramble()
    before = snapshot(), list(seen), fastseed.derivation.context.seeder.scope
    for value in (-1, TOPS[name] + 1, 2**200):
        with pytest.raises(ValueError) as caught:
            fastseed.reseed(**{"task": 1, "epoch": 0, name: value})
        rule = f"{name} must be in [0, {TOPS[name]}], got {value}"
        assert str(caught.value) == f"fastseed.reseed: {rule}"
        assert (snapshot(), seen, fastseed.derivation.context.seeder.scope) == before
    fastseed.reseed(**{"task": 1, "epoch": 0, name: TOPS[name]})


def test_numpy_integers_are_integers():
    s = seeder()
    s.reseed(1, 2, 3)
    expected = snapshot()
    for kind in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
        s.reseed(kind(1), kind(2), kind(3))
        assert snapshot() == expected
        assert seeder(kind(42)).derive_key("x", task=kind(1)) == s.derive_key("x", task=1)
        assert s.derive_seed("x", epoch=kind(0), step=kind(0), bits=kind(31)) < 2**31
    s.reseed(1, 0, np.uint64(2**64 - 1))
    assert tuple(s.scope) == (1, 0, 2**64 - 1)
    assert type(s.scope.step) is int


# ---------------------------------------------------------------- callables that raise


def test_one_failure_leaves_all_others_reseeded():
    s, clean = seeder(), seeder()
    generator, twin, seen = torch.Generator(), torch.Generator(), []

    def fails(seed):
        raise KeyError("no such device")

    s.register_generator(fails, name="first")
    s.register_generator(generator, name="g")
    s.register_generator(lambda seed: 1 / 0, name="third")
    s.register_generator(seen.append, name="last")
    clean.register_generator(twin, name="g")
    clean.reseed(1, 2)
    expected = snapshot()

    scramble()
    with pytest.raises(fastseed.ReseedError) as caught:
        s.reseed(1, 2)
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert list(error.failures) == ["first", "third"]
    assert isinstance(error.failures["first"], KeyError)
    assert isinstance(error.failures["third"], ZeroDivisionError)
    assert error.__cause__ is error.failures["first"]
    assert str(error).startswith("fastseed.reseed: these generators were not reseeded: first: ")
    for part in ("first", "third", "no such device", "ZeroDivisionError"):
        assert part in str(error)
    assert snapshot() == expected
    assert torch.equal(generator.get_state(), twin.get_state())
    assert seen == [reference_narrow_seed("last", epoch=2)]


def test_reseed_again_after_a_failure_is_a_clean_run(caplog):
    s, broken = seeder(), True
    seen = []

    def sometimes(seed):
        if broken:
            raise OSError("away")
        seen.append(seed)

    s.register_generator(sometimes, name="s")
    s.register_generator(generator := torch.Generator(), name="g")
    with pytest.raises(fastseed.ReseedError):
        s.reseed(1, 2)
    scramble()
    torch.rand(3, generator=generator)
    broken = False
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        s.reseed(1, 2)
    assert caplog.records == []  # the failed call does not count as having used the scope
    again = snapshot(), generator.get_state().tolist(), list(seen)

    clean = seeder()
    clean.register_generator(seen.append, name="s")
    clean.register_generator(twin := torch.Generator(), name="g")
    scramble()
    clean.reseed(1, 2)
    assert again == (snapshot(), twin.get_state().tolist(), seen[1:])


@pytest.mark.parametrize("failing", ["python", "numpy", "torch.cpu"])
def test_one_default_generator_that_fails_is_reported_and_the_others_are_reseeded(
    monkeypatch, failing
):
    """Also where one native call sets all three."""

    def fails(*_):
        raise OSError("away")

    s, clean = seeder(), {}
    s.reseed(1, 2)
    for name, adapter in s.generators.defaults.adapters.items():
        clean[name] = adapter.state().tolist()
    scramble()
    if s.generators.defaults.adapters["numpy"].find_memory() is not None:
        monkeypatch.setattr(native.generators, "reseed_defaults_of_cpu", fails)
        monkeypatch.setattr(native.generators, "reseed_sample_of_cpu", fails)
    monkeypatch.setattr(s.generators.defaults.adapters[failing], "reseed", fails)
    with pytest.raises(fastseed.ReseedError) as caught:
        s.reseed(1, 2)
    assert list(caught.value.failures) == [failing]
    for name, adapter in s.generators.defaults.adapters.items():
        assert (adapter.state().tolist() == clean[name]) == (name != failing)
    assert list(s.generators.defaults.reseed_sample((1, 2), 3, 0)) == [failing]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupts_are_not_swallowed(interrupt):
    def stops(seed):
        raise interrupt

    s = seeder()
    s.register_generator(stops)
    with pytest.raises(interrupt):
        s.reseed(1)


# ---------------------------------------------------------------- repetition


def messages(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def test_a_repeated_scope_warns(caplog):
    s = seeder()
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        for at in ((0, 0), (1, 0), (1, 1), (1, 0, 1), (2, 0)):
            s.reseed(*at)
        assert messages(caplog) == []
        s.reseed(1, 0, 1)
    (said,) = messages(caplog)
    assert said.startswith("fastseed.reseed: task 1, epoch 0, step 1 was used before")
    assert all(r.name.startswith("fastseed") for r in caplog.records)


def test_repetition_is_noticed_over_a_long_run(caplog, monkeypatch):
    """The table is bounded, so some scopes are forgotten; the latest is always there."""
    monkeypatch.setattr(recent_scopes, "_SLOTS", 1 << 15)
    s = seeder()
    for epoch in range(10_000):
        s.reseed(1, epoch)
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        s.reseed(1, 9_999)
        forgotten = 10
        for epoch in range(9_990, 9_999):
            s.reseed(1, epoch)
            forgotten = 10 - len(messages(caplog))
    assert forgotten <= 1


def test_remembering_scopes_takes_bounded_memory():
    s = seeder()
    for epoch in range(200):  # Python keeps some freed objects of each kind
        s.reseed(0, epoch)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for epoch in range(5_000):
            s.reseed(1, epoch)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 5_000  # a byte a reseed would be this much


# ---------------------------------------------------------------- torch.compile


@pytest.mark.slow
@pytest.mark.parametrize("first", ["compiled first", "eager first"])
def test_reseed_in_a_compiled_region_is_never_ignored(first):
    """In an interpreter of its own: whether Dynamo was imported before the first reseed matters."""
    found = run_script("compiled_region.py", first, fresh=True)
    assert found["dynamo_at_start"] is False
    assert found["warnings"] == []  # which tell users to file an issue with PyTorch
    for backend in ("eager", "aot_eager"):
        ways = ("module function", "Seeder method", "pyt function", "no tensor", "pool", "fork_rng")
        for way in ways:
            assert found[f"{backend}/{way}"] == "runs on every call", (backend, way)
        for way in ("module function", "Seeder method"):
            kind, text = found[f"{backend}/{way}/fullgraph"]
            assert kind != "no error" and "Seeder.reseed" in text, (backend, way)
            assert "call it outside of the compiled function" in text
        assert found[f"{backend}/fork_rng/fullgraph"][0] == "Unsupported"


META = torch.empty(2, dtype=torch.uint64, device="meta")
KEYS = fastseed.random.bits(7, (4, 2), dtype=torch.uint64)
MODEL = torch.nn.Linear(2, 2)
EMPTY = fastseed.data.Loader(
    fastseed.data.per_sample(range(8)), batch_sampler=[[]], collate_fn=fastseed.data.per_batch(list)
)
QUANTIZED = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


def perturbed(x):
    with fastseed.nn.perturbed(MODEL, 1, 0.1):
        return (MODEL.weight * x).sum()


def copy_of_open_block():
    with fastseed.random.keyed("x") as block:
        copy.deepcopy(block)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fastseed.random.normal_(torch.ones(2), META), "key must have data"),
        (lambda: fastseed.nn.functional.dropout(torch.ones(2), 0.5, META), "key must have data"),
        (lambda: fastseed.nn.perturb_(MODEL, META, 0.1), "seed must have data"),
        (lambda: fastseed.nn.perturb_(MODEL, 1, 0.1, shards=False), "shards must be a dict"),
        (lambda: fastseed.nn.perturb_(MODEL, 1, 0.1, shards=META), "shards must be a dict"),
        (lambda: fastseed.derive_seed("x", bits=True), "bits must be one of"),
        (lambda: torch.vmap(lambda k: fastseed.random.bits(k, (3,)))(KEYS), "not draw in torch.vm"),
        (lambda: torch.vmap(lambda x: fastseed.random.normal_(x, 1))(torch.ones(4, 3)), "torch.vm"),
        (lambda: torch.func.grad(perturbed)(torch.ones(())), "transform of torch.func"),
        (lambda: copy_of_open_block(), "an open block must not be copied"),
        (lambda: list(EMPTY), "a batch must have a sample"),
        (lambda: fastseed.data.Lineage(3), "history must be a History"),
        (lambda: fastseed.elastic.Slot(object()), "number must be an integer"),
        (lambda: fastseed.elastic.mean(QUANTIZED, weights=[1, 1]), "values must be of dtype"),
        (lambda: debug.seed_reach(lambda s: {"x": s}, allow={1: "constant"}), "must be a string"),
        (lambda: debug.Watch(MODEL, range(2**70)), "optimizer must be"),
        (lambda: debug.Watch(MODEL, MODEL), "optimizer must be"),
        (lambda: debug.Watch(MODEL, path="x", modules=np.array([])), "modules must be"),
        *((lambda v=v: fastseed.rollouts.seeds(0, v, 1), "prompts must be") for v in ({"a"}, {7})),
        (lambda: fastseed.rollouts.seeds(0, ["a"], 1, range(2**70)), "must be"),
        *((lambda v=v: fastseed.random.StreamBank(1, "b").reseed_from_seeds(v), "seeds must be a t")
          for v in (np.array(3), {3})),
        *((lambda v=v: fastseed.random.keyed("x", distinct_over=v).__enter__(), "must be a tuple")
          for v in (set(), range(0), b"", "")),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(call, says):
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1)
    with pytest.raises((TypeError, ValueError, RuntimeError), match=rf"fastseed\..*{says}"):
        call()


def test_a_failed_reseed_keeps_no_generator():
    """A traceback in the error would hold its generator until cycles are collected."""
    s, broken = seeder(), type("Broken", (), {"__call__": lambda self, seed: 1 / 0})()
    s.register_generator(broken)
    alive = weakref.ref(broken)
    gc.disable()
    try:
        with contextlib.suppress(fastseed.ReseedError):
            s.reseed(1)
        s.unregister_generator(broken)
        del broken
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: fastseed.state_dict(rng=t), "state_dict: rng must be a bool"),
        (lambda t: fastseed.register_generator(torch.Generator(), shared=t), "shared must be a b"),
        (lambda t: fastseed.distributed.verify_agreement(group=t), "group must be a process group"),
        (lambda t: fastseed.sampling.sample(torch.ones(1, 2), [7], 0, top_p=[t]), "top_p must be"),
    ],
)
def test_freed_tensors_in_place_of_numbers_are_refused(call, says):
    """To read one, as a truth value for example, ends the process."""
    fastseed.init(42, rank=0, world_size=1)
    freed = torch.ones(1, dtype=torch.int64)
    freed.untyped_storage().resize_(0)
    with pytest.raises((TypeError, ValueError), match=says):
        call(freed)
