"""TensorFlow and CuPy as planted modules, JAX itself."""

from __future__ import annotations

import sys
import types

import pytest
from helpers.support import reference_narrow_seed

import fastseed
from fastseed.integrations import frameworks

NAMES = "tensorflow", "cupy", "jax"


@pytest.fixture(autouse=True)
def none_imported(monkeypatch):
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)


def planted(monkeypatch, name, path):
    """A library whose seeding function, at ``path``, writes down what it gets."""
    seeds = []
    holder = module = types.ModuleType(name)
    *parts, last = path.split(".")
    for part in parts:
        inner = types.SimpleNamespace()
        setattr(holder, part, inner)
        holder = inner
    setattr(holder, last, seeds.append)
    monkeypatch.setitem(sys.modules, name, module)
    return seeds


def test_nothing_is_imported_and_nothing_is_registered():
    fastseed.init(42)
    assert frameworks.register() == ()
    assert not set(NAMES) & set(sys.modules)


@pytest.mark.parametrize(
    "name, path",
    [
        ("tensorflow", "random.set_seed"),
        ("cupy", "random.seed"),
    ],
)
def test_they_follow_reseed(monkeypatch, name, path):
    fastseed.init(42, rank=0, world_size=1)
    seeds = planted(monkeypatch, name, path)
    assert frameworks.register() == (name,)
    fastseed.reseed(1, 7)
    fastseed.reseed(1, 8)
    assert seeds == [reference_narrow_seed(name, task=1, epoch=epoch) for epoch in (7, 8)]
    assert frameworks.register() == ()  # it is
    later = planted(monkeypatch, "cupy" if name == "tensorflow" else "tensorflow", "random.seed")
    if name == "tensorflow":
        assert frameworks.register() == ("cupy",)
        fastseed.reseed(1, 9)
        assert len(later) == 1 and len(seeds) == 3


def test_calls_at_the_wrong_moment_are_refused():
    with pytest.raises(RuntimeError, match=r"register_frameworks: call fastseed.init"):
        frameworks.register()
    with pytest.raises(RuntimeError, match=r"fastseed.integrations.jax_key: import jax first"):
        frameworks.jax_key(task=0)


@pytest.fixture(scope="module")
def the_jax():
    return pytest.importorskip("jax")


@pytest.fixture
def jax(the_jax, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", the_jax)
    return the_jax


@pytest.mark.parametrize("impl, words", [(None, 2), ("threefry2x32", 2), ("rbg", 4)])
def test_a_jax_key_is_the_words_of_a_fastseed_key(jax, impl, words):
    fastseed.init(42, rank=0, world_size=1)
    where = {"task": 1, "epoch": 7, "step": 3, "index": 5}
    key = fastseed.derive_key("jax", **where)
    found = frameworks.jax_key(**where, impl=impl)
    data = jax.random.key_data(found)
    assert [int(w) for w in data] == [key >> 32 * i & 0xFFFFFFFF for i in range(words)]
    assert str(data.dtype) == "uint32" and jax.dtypes.issubdtype(found.dtype, jax.dtypes.prng_key)


def test_jax_draws_from_it_and_other_streams_draw_otherwise(jax):
    fastseed.init(42, rank=0, world_size=1)
    draws = {
        jax.random.normal(frameworks.jax_key(name, task=1, epoch=epoch), (4,)).tobytes()
        for name in ("jax", "dropout")
        for epoch in (0, 1)
    }
    again = jax.random.normal(frameworks.jax_key("dropout", task=1, epoch=1), (4,)).tobytes()
    assert len(draws) == 4 and again in draws


def test_jax_keys_follow_the_default_generator(jax):
    fastseed.init(42)
    with jax.default_prng_impl("rbg"):
        assert jax.random.key_data(frameworks.jax_key(task=0)).shape == (4,)
    with pytest.raises(ValueError):
        frameworks.jax_key(task=0, impl="nonsense")
    with pytest.raises(ValueError, match=r"fastseed.derive_key: epoch must be"):
        frameworks.jax_key(task=0, epoch=-1)
