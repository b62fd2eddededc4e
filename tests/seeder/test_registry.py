"""Registered generators: names, kinds, order, and how long they are held."""

import contextlib
import functools
import gc
import random
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.support import holds_key, reference_narrow_seed, repr_state, seeder

import fastseed
import fastseed.pyt
from fastseed import SHARED, GeneratorPool
from fastseed._utils.log import warn_once
from fastseed.data import ShuffleSampler
from fastseed.seeder import registry


class Recorder:
    """A callable that keeps what it was given."""

    def __init__(self):
        self.seeds = []

    def __call__(self, seed):
        self.seeds.append(seed)


ANY = torch.Generator()

# ---------------------------------------------------------------- names


def test_unnamed_generators_are_numbered_in_registration_order():
    s = seeder()
    recorders = [Recorder() for _ in range(4)]
    s.register_generator(recorders[0])
    s.register_generator(recorders[1], name="mine")
    s.register_generator(recorders[2], shared=True)
    s.unregister_generator(recorders[0])
    s.register_generator(recorders[3])
    s.reseed(1, 2)
    expected = (("mine", 0), ("generator/1", SHARED), ("generator/2", 0))
    for recorder, (name, rank) in zip(recorders[1:], expected, strict=True):
        assert recorder.seeds == [reference_narrow_seed(name, epoch=2, rank=rank)], name
    assert recorders[0].seeds == []


REFUSED = [
    *(
        (kind, {}, TypeError, rf"generator must be an instance, as {kind.__name__}\(\), got")
        for kind in (torch.Generator, random.Random, np.random.RandomState, ShuffleSampler)
    ),
    *(
        (
            generator,
            {"name": "mine"},
            ValueError,
            "generator must be one that reseed does not set a",
        )
        for generator in (
            *(torch.default_generator, random._inst, np.random.mtrand._rand, np.random.seed),
            *(random.seed, torch.manual_seed, torch.default_generator.manual_seed),
        )
    ),
    (torch.nn.Identity(), {}, ValueError, "generator must be a module that holds generators"),
    *((some, {}, TypeError, "") for some in (3, None, [], random.SystemRandom(), [ANY, 3])),
    *((print, {"shared": shared}, TypeError, "") for shared in (1, None)),
    (print, {"name": 3}, TypeError, ""),
    (print, {"name": ""}, ValueError, ""),
    *((print, {"bits": bits}, ValueError, "") for bits in (33, True, "31")),
]


@pytest.mark.parametrize(("generator", "options", "error", "says"), REFUSED)
def test_refused_registrations_change_nothing(generator, options, error, says):
    """A class would be called at each reseed; what reseed sets would get another stream."""
    s = seeder()
    with pytest.raises(error, match=rf"^fastseed\.register_generator: {says}"):
        s.register_generator(generator, **options)
    assert len(s.generators.registry) == 0
    s.register_generator(recorder := Recorder())
    s.reseed(1)
    assert recorder.seeds == [reference_narrow_seed("generator/0")]


def test_the_seeding_functions_of_now_are_refused(monkeypatch):
    """Dynamo wraps those of torch when it is imported."""
    monkeypatch.setattr(torch, "manual_seed", functools.wraps(torch.manual_seed)(lambda seed: None))
    with pytest.raises(ValueError, match="generator must be one that reseed does not set already"):
        seeder().register_generator(torch.manual_seed, name="mine")


class Noise(torch.nn.Module):
    def __init__(self, generator=None):
        super().__init__()
        self.generator = generator or torch.Generator()
        self.by_name = {"mask": np.random.default_rng(0)}


def test_a_module_is_registered_by_the_generators_of_its_parts():
    seeds = seeder(rank=1, world_size=2)
    shared, model = torch.Generator(), torch.nn.Sequential()
    model.extend([Noise(shared), torch.nn.Linear(1, 1), Noise(shared)])
    model.register_module("last", torch.nn.ModuleList([Noise()]))
    mine = torch.Generator()
    model.mine = mine
    seeds.register_generator(mine, name="mine")
    seeds.register_generator(model, shared=True)
    paths = ("0.generator", "0.by_name['mask']", "2.by_name['mask']")
    last = ("last.0.generator", "last.0.by_name['mask']")
    assert sorted(seeds.generators.registry.entries) == sorted(("mine", *paths, *last))
    seeds.reseed(1)
    key = seeds.derive_key("last.0.generator", task=1, rank=SHARED)
    assert holds_key(model.last[0].generator, key)
    with pytest.raises(ValueError, match="generators in attributes, which are not registered yet"):
        seeds.register_generator(model)
    seeds.unregister_generator(model)
    assert list(seeds.generators.registry.entries) == ["mine"]
    with pytest.raises(ValueError, match="generator must be a registered generator"):
        seeds.unregister_generator(model)
    seeds.register_generator(model.last, name="cond")
    assert [*seeds.generators.registry.entries][1:] == [
        "cond.0.generator",
        "cond.0.by_name['mask']",
    ]


def test_a_module_is_registered_whole_or_not_at_all():
    seeds = seeder()
    with pytest.raises(ValueError, match="must be a module that holds generators"):
        seeds.register_generator(torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="must be a registered generator"):
        seeds.unregister_generator(torch.nn.Linear(1, 1))
    seeds.register_generator(print, name="b.generator")
    model = torch.nn.ModuleDict({"a": Noise(), "b": Noise()})
    with pytest.raises(ValueError, match=r"not registered yet .* got 'b.generator'"):
        seeds.register_generator(model)
    assert list(seeds.generators.registry.entries) == ["b.generator"]


def test_two_generators_without_a_name_warn(caplog):
    s = seeder()
    s.register_generator(Recorder())
    s.register_generator(Recorder(), name="mine")
    assert not caplog.messages
    for _ in range(2):
        s.register_generator(Recorder())
    (message,) = caplog.messages
    assert "'generator/1' has no name=" in message and "give each a name" in message


def test_a_generator_that_is_registered_after_a_reseed_warns(caplog):
    warn_once.cache_clear()
    fastseed.init(42, rank=0, world_size=1)
    fastseed.register_generator(Recorder(), name="before")
    fastseed.reseed(0)
    fastseed.register_generator(Recorder(), name="early")
    caplog.clear()  # of the scope that was used before
    fastseed.reseed(1)
    fastseed.register_generator(Recorder(), name="late")
    (message,) = caplog.messages
    assert "'late' was registered after a reseed, and keeps the state" in message


class SeedsAndEpochs(Recorder):
    """A seed function that also has an epoch."""

    def __init__(self):
        super().__init__()
        self.epochs = []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)


def test_a_callable_with_set_epoch_is_called_under_fwr13y():
    """fwr13y calls what is registered; under fastseed's scheme it is a sampler."""
    both = SeedsAndEpochs()
    fastseed.pyt.init(42, 1, 0, scheme="fwr13y")
    fastseed.pyt.register_generator(both)
    fastseed.pyt.reseed(1, 7)
    assert both.seeds == [fastseed.pyt.SeedGen(42, 1, 0)(1, 7)] and both.epochs == []
    other = SeedsAndEpochs()
    s = seeder()
    s.register_generator(other)
    s.reseed(1, 7)
    assert other.seeds == [] and other.epochs == [7]


def test_an_equal_name_is_refused_until_it_is_free_again():
    s, old, new = seeder(), Recorder(), Recorder()
    s.register_generator(old, name="a")
    with pytest.raises(ValueError) as caught:
        s.register_generator(new, name="a")
    assert str(caught.value) == (
        "fastseed.register_generator: name must be one that is not registered yet (pass another, "
        "or unregister that one first), got 'a'"
    )
    assert len(s.generators.registry) == 1
    s.unregister_generator(old)
    s.register_generator(new, name="a")
    s.reseed(1)
    assert (len(old.seeds), len(new.seeds)) == (0, 1)


def test_a_pool_is_called_by_its_own_name():
    s = seeder()
    a, b = torch.Generator(), torch.Generator()
    s.register_generator(GeneratorPool([a], name="mine"))
    s.register_generator([b], name="other")
    with pytest.raises(ValueError, match="name must be left out, or 'pool', the name of the gen"):
        s.register_generator(GeneratorPool([b], "pool"), name="another")
    s.register_generator(recorder := Recorder())
    s.reseed(1)
    assert holds_key(a, s.derive_key("mine", task=1))
    assert holds_key(b, s.derive_key("other", task=1))
    assert recorder.seeds == [reference_narrow_seed("generator/0")]


def test_a_number_is_given_once_and_not_to_a_refused_registration():
    def names():
        return [entry.name for entry in s.generators.registry]

    s = seeder()
    s.register_generator(print, name="generator/0")
    with pytest.raises(ValueError, match="distinct_over"):
        s.register_generator(repr, distinct_over=("dp",))
    s.unregister_generator(print)
    s.register_generator(repr)
    assert names() == ["generator/0"]
    s.register_generator(print, name="generator/1")
    s.register_generator(len)
    s.unregister_generator(len)
    s.register_generator(len)
    assert names() == ["generator/0", "generator/1", "generator/3"]


# ---------------------------------------------------------------- kinds


@pytest.mark.parametrize("bits", [None, 31, 32, 63, 64, 128])
def test_callables_get_so_many_bits(bits):
    s = seeder()
    s.register_generator(recorder := Recorder(), name="f", **({"bits": bits} if bits else {}))
    bits = bits or 31
    for epoch in range(20):
        s.reseed(1, epoch)
    if bits in (31, 32):
        expected = [reference_narrow_seed("f", bits, epoch=epoch) for epoch in range(20)]
    else:
        expected = [s.derive_key("f", task=1, epoch=epoch) % 2**bits for epoch in range(20)]
    assert recorder.seeds == expected
    assert all(type(seed) is int for seed in recorder.seeds)
    assert max(recorder.seeds) >= 2 ** (bits - 2)


def test_generators_of_each_library():
    s = seeder()
    own, new, old = random.Random(1), np.random.default_rng(1), np.random.RandomState(1)
    generator = torch.Generator()
    for name, one in {"own": own, "new": new, "old": old, "torch": generator}.items():
        s.register_generator(one, name=name)
    old.standard_normal(), torch.randn(3, generator=generator)
    s.reseed(1, 2, 3)
    keys = {n: s.derive_key(n, task=1, epoch=2, step=3) for n in ("own", "new", "old", "torch")}
    assert own.getstate() == random.Random(keys["own"]).getstate()
    clean = np.random.PCG64(np.random.SeedSequence(keys["new"]))
    assert repr_state(new.bit_generator.state) == repr_state(clean.state)
    words = fastseed._backend.derive.mt19937_state(keys["old"])
    assert np.array_equal(old.get_state()[1], words)
    assert holds_key(generator, keys["torch"])


@pytest.mark.parametrize("kind", [list, tuple, functools.partial(GeneratorPool, name="many")])
@pytest.mark.parametrize("shared", [False, True])
def test_lists_of_torch_generators(kind, shared):
    s = seeder(rank=2, world_size=4)
    members = [torch.Generator() for _ in range(20)]
    s.register_generator(kind(members), shared, name="many")
    s.reseed(1, 2)
    for i, member in enumerate(members):
        rank = SHARED if shared else 2
        assert holds_key(member, s.derive_key("many", task=1, epoch=2, index=i, rank=rank))


def test_registered_functions_methods_and_classes():
    """fwr13y's way to register: the seeding function of a library."""

    class Takes:
        def __init__(self, seed):
            seeds.append(seed)

    s, generator, seeds = seeder(), torch.Generator(), []
    s.register_generator(generator.manual_seed, name="g")
    s.register_generator(functools.partial(np.random.RandomState(1).seed), name="n")
    s.register_generator(seeds.append)
    s.register_generator(Takes)
    s.reseed(1)
    assert generator.initial_seed() == reference_narrow_seed("g") and len(seeds) == 2
    s.unregister_generator(seeds.append)  # a method is another object each time
    s.unregister_generator(Takes)
    s.reseed(2)
    assert len(seeds) == 2


def test_shared_is_the_same_on_every_rank_and_own_is_not():
    shared, own = Recorder(), Recorder()
    for rank in range(4):
        s = seeder(rank=rank, world_size=4)
        s.register_generator(shared, shared=True, name="shared")
        s.register_generator(own, name="own")
        s.reseed(1, 2)
    assert len(set(shared.seeds)) == 1 and len(set(own.seeds)) == 4
    assert shared.seeds[0] == reference_narrow_seed("shared", epoch=2, rank=SHARED)


def test_registered_objects_are_held_until_unregistered():
    s = seeder()
    recorder = Recorder()
    alive = weakref.ref(recorder)
    s.register_generator(recorder)
    del recorder
    gc.collect()
    assert alive() is not None
    s.reseed(1)
    assert len(alive().seeds) == 1
    s.unregister_generator(alive())
    gc.collect()
    assert alive() is None


# ---------------------------------------------------------------- unregistering


def test_unregister_unknown_is_a_value_error():
    s = seeder()
    s.register_generator(len)
    for unknown in (print, torch.Generator(), 3, None):
        with pytest.raises(
            ValueError,
            match=r"unregister_generator: generator must be a registered generator, got ",
        ):
            s.unregister_generator(unknown)
    s.unregister_generator(len)
    with pytest.raises(ValueError, match="registered"):
        s.unregister_generator(len)


def test_unregister_takes_the_very_generator_not_an_equal_one():
    """Generators of NumPy and torch, lists and pools are distinguished by identity."""
    s = seeder()
    a, b = random.Random(1), random.Random(1)
    s.register_generator(a, name="a")
    s.register_generator(b, name="b")
    s.unregister_generator(b)
    s.reseed(1)
    assert a.getstate() == random.Random(s.derive_key("a", task=1)).getstate()
    assert b.getstate() == random.Random(1).getstate()
    listed = [torch.Generator()]
    s.register_generator(listed, name="listed")
    with pytest.raises(ValueError, match="registered"):
        s.unregister_generator(list(listed))
    s.unregister_generator(listed)


@pytest.mark.parametrize("hashed", [lambda self: 0, None])
def test_unregister_takes_the_very_callable_before_an_equal_one(hashed):
    names = {"__eq__": lambda *_: True, "__hash__": hashed}
    kind = type("Equal", (Recorder,), names)
    first, second = kind(), kind()
    s = seeder()
    s.register_generator(first, name="first")
    s.register_generator(second, name="second")
    s.unregister_generator(second)
    assert [entry.name for entry in s.generators.registry] == ["first"]
    if hashed is None:  # nothing finds an equal one
        with pytest.raises(ValueError, match="a registered generator"):
            s.unregister_generator(kind())
    assert s.derive_seed("second", task=1, rank=0) == seeder().derive_seed("second", task=1, rank=0)


def test_unregister_one_registration_at_a_time():
    """Like fwr13y's list: a generator registered twice has to be removed twice."""
    s = seeder()
    recorder = Recorder()
    s.register_generator(recorder, name="first")
    s.register_generator(recorder, name="second")
    s.unregister_generator(recorder)
    s.reseed(1)
    assert recorder.seeds == [reference_narrow_seed("second")]
    s.unregister_generator(recorder)
    with pytest.raises(ValueError, match="registered"):
        s.unregister_generator(recorder)


def test_a_generator_has_one_registration():
    seeds = seeder()
    generator = torch.Generator()
    seeds.register_generator(generator, name="a")
    with pytest.raises(ValueError, match="must be registered once: it is already, as 'a'"):
        seeds.register_generator(generator, name="b")
    assert [entry.name for entry in seeds.generators.registry] == ["a"]
    seeds.unregister_generator(generator)
    seeds.register_generator(generator, name="b")


def test_the_rank_field_of_a_name_is_that_of_what_draws_under_it():
    s = seeder(rank=1, world_size=2)
    generator, dataset = torch.Generator(), SimpleNamespace(set_epoch=print)
    s.register_generator(generator, shared=True, name="a")
    s.register_generator(dataset, shared=True, name="data")  # which draws nothing
    keys = [s.derive_key(name, task=1) for name in ("a", "data")]
    s.unregister_generator(generator)
    own = [s.derive_key(name, task=1, rank=1) for name in ("a", "data")]
    assert keys == [s.derive_key("a", task=1, rank=fastseed.SHARED), own[1]]
    assert s.derive_key("a", task=1) == own[0]


def test_threads_register_one_after_another(monkeypatch):
    """Two that are named at the same time would have one name, hence the same numbers."""
    s, both, name_of = seeder(), threading.Barrier(2), registry.Registry._name

    def name_and_wait(self, generator, name):
        named = name_of(self, generator, name)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # the other thread comes here too, if it can
        return named

    monkeypatch.setattr(registry.Registry, "_name", name_and_wait)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(s.register_generator, [torch.Generator(), torch.Generator()]))
    assert [entry.name for entry in s.generators.registry] == ["generator/0", "generator/1"]
