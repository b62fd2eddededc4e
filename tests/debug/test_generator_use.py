"""What a block uses: unregistered generators, seeding calls, repeated scopes."""

import gc
import random
import sys
import types

import numpy as np
import pytest
import torch
from helpers.support import snapshot

import fastseed
from fastseed.debug import generator_use
from fastseed.derivation import context

pytestmark = pytest.mark.usefixtures("frozen_objects")


def start() -> None:
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 3)


class Transform:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.other = torch.Generator()
        self.idle = random.Random(2)


def test_names_unregistered_generators():
    start()
    transform, known = Transform(), random.Random(1)
    fastseed.register_generator(known, name="known")
    with generator_use.watched_use() as found:
        random.random(), np.random.rand(), torch.rand(()), known.random()
        assert not found
        transform.rng.random()
        torch.rand(1, generator=transform.other)
    assert {(row.item, row.detail) for row in found} == {
        (
            "numpy.random._generator.Generator",
            "drawn from, not registered: Transform.rng; pass it to fastseed.register_generator",
        ),
        (
            "torch.Generator",
            "drawn from, not registered: Transform.other; pass it to fastseed.register_generator",
        ),
    }
    assert {(row.topic, row.status) for row in found} == {("use", "wrong")}


def test_finds_generators_in_dicts_that_the_garbage_collector_does_not_track():
    start()
    holder = types.SimpleNamespace(rng=torch.Generator())
    assert not gc.is_tracked(holder.__dict__)
    with generator_use.watched_use() as found:
        torch.rand(1, generator=holder.rng)
    (row,) = found
    assert row.detail.startswith("drawn from, not registered: ")


def test_a_generator_on_the_bits_of_the_default_one_is_controlled():
    """SciPy has had one."""
    start()
    shared = np.random.Generator(np.random.get_bit_generator())
    with generator_use.watched_use() as found:
        np.random.rand(), shared.random()
    assert found == []


def test_finds_generators_that_are_deleted():
    start()
    with generator_use.watched_use() as found:
        np.random.default_rng().random()
    (row,) = found
    assert row.detail.startswith(f"drawn from, made without a seed: {__file__}:")


def test_finds_seeding_calls():
    start()
    original = random.seed, np.random.seed, torch.manual_seed, np.random.default_rng
    with generator_use.watched_use() as found:
        random.seed(7), np.random.seed(7), torch.manual_seed(7)
    assert [row.item for row in found] == ["random.seed", "numpy.random.seed", "torch.manual_seed"]
    assert all(row.detail.startswith(f"seeds a default generator: {__file__}:") for row in found)
    assert (random.seed, np.random.seed, torch.manual_seed, np.random.default_rng) == original


def test_finds_repeated_scopes_and_restores_after_errors():
    start()
    original = random.seed
    with generator_use.watched_use() as found:
        fastseed.reseed(1, 4)
        fastseed.reseed(1, 3)
    assert [row.item for row in found] == ["1 scopes"]
    with pytest.raises(ZeroDivisionError), generator_use.watched_use():
        _ = 1 / 0
    assert random.seed is original


def test_changes_no_state():
    start()
    torch.rand(3)
    before = snapshot()
    with generator_use.watched_use():
        pass
    assert snapshot() == before


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("holder", ["rng = random.Random()", "class Dummy: rng = random.Random()"])
def test_leaves_out_generators_of_packages(monkeypatch, holder, is_new):
    """torch imports sympy, for example, whose class Dummy has one that sympy itself uses."""
    start()
    package = types.ModuleType("installed_package")
    monkeypatch.setitem(sys.modules, "installed_package", package)
    own = generator_use._is_installed
    assert own("sys") and not own("__main__")  # one has no file, the other may be a library's
    monkeypatch.setattr(
        generator_use, "_is_installed", lambda name: name == "installed_package" or own(name)
    )

    def make() -> None:
        draw = "draw = (Dummy.rng if 'Dummy' in globals() else rng).random"
        exec(f"import random\n{holder}\n{draw}", vars(package))

    if not is_new:
        make()
    with generator_use.watched_use() as found:
        if is_new:
            make()
        package.draw()
    assert found == []


@pytest.mark.parametrize("is_new", [True, False])
def test_reports_generators_that_objects_of_packages_hold(is_new):
    """An augmentation or an environment of an installed package decides what the job trains on."""
    start()
    kept, of_standard = (
        type("Environment", (), {"__module__": name})() for name in ("numpy.gym", "tempfile")
    )

    def make() -> None:
        kept.rng, kept.names = np.random.Generator(np.random.PCG64(7)), random.Random(1)
        of_standard.rng = random.Random(2)

    if not is_new:
        make()
    with generator_use.watched_use() as found:
        if is_new:
            make()
        kept.rng.random(), kept.names.random(), is_new and of_standard.rng.random()
    names = "drawn from, not registered: Environment.names"
    assert {(row.status, row.detail) for row in found} == {
        (
            "wrong",
            "drawn from, not registered: Environment.rng; pass it to fastseed.register_generator",
        ),
        ("note", names)
        if is_new
        else ("wrong", f"{names}; pass it to fastseed.register_generator"),
    }


def test_a_generator_of_which_a_method_is_registered_is_controlled():
    """As fwr13y's scripts register: the method reseeds a generator of its object."""
    start()
    transform = Transform()
    method = types.MethodType(lambda self, seed: self.idle.seed(seed), transform)
    fastseed.register_generator(method)
    with generator_use.watched_use() as found:
        transform.idle.random()
    assert found == []


@pytest.mark.parametrize("draw", [torch.rand, np.random.rand, lambda _: random.random()])
def test_finds_draws_before_init(monkeypatch, draw):
    monkeypatch.setattr(context, "seeder", None)
    with generator_use.watched_use() as found:
        start()
        draw(1)
        start()
    assert not [row for row in found if "before" in row.detail]
    monkeypatch.setattr(context, "seeder", None)
    with generator_use.watched_use() as found:
        draw(1)
        start()
    (row,) = found
    name = {"rand": "torch.cpu" if draw is torch.rand else "numpy"}.get(draw.__name__, "python")
    assert (row.item, row.status) == (name, "note" if name == "python" else "wrong")
    assert row.detail.startswith(f"drawn from before init: {__file__}:")


def train(reseeds=False, draws=True, steps=3):
    fastseed.init(42, rank=0, world_size=1)
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter])
    with generator_use.watched_use() as found:
        for step in range(steps):
            if reseeds and step == 0:
                fastseed.reseed(0)
            noise = torch.rand(2) if draws else torch.ones(2)
            (parameter * noise).sum().backward()
            optimizer.step()
    return [row.item for row in found]


def test_training_in_the_scope_of_init_is_found():
    assert train() == ["3 optimizer steps"]


@pytest.mark.parametrize("arguments", [{"reseeds": True}, {"draws": False}, {"steps": 1}])
def test_training_that_moves_or_draws_nothing_is_no_finding(arguments):
    assert train(**arguments) == []


def test_training_with_steps_is_no_finding():
    fastseed.init(42, rank=0, world_size=1)
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter])
    loader = torch.utils.data.DataLoader(range(4), shuffle=True)
    with generator_use.watched_use() as found:
        for _ in fastseed.data.steps(loader, epochs=1, task=1):
            (parameter * torch.rand(2)).sum().backward()
            optimizer.step()
    assert found == []


def test_check_calls_a_function():
    start()
    rows = fastseed.debug.check(lambda: np.random.default_rng().random())
    assert [row.topic for row in rows if row.status == "wrong"] == ["use"]
    with pytest.raises(ZeroDivisionError):
        fastseed.debug.check(lambda: 1 / 0)
    with pytest.raises(TypeError, match=r"^fastseed.debug.check: run must be callable or None"):
        fastseed.debug.check(5)
