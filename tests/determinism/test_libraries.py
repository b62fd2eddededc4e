"""TensorFlow and CuPy as planted modules, JAX itself."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import fastseed
from fastseed import libraries


@pytest.fixture(autouse=True)
def none_imported(monkeypatch):
    for name in libraries.NAMES:
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
    assert libraries.imported() == () and libraries.register() == ()
    assert libraries.seed_function("tensorflow") is None
    assert not set(libraries.NAMES) & set(sys.modules)


def test_importing_fastseed_imports_none_of_them():
    code = "import fastseed, sys; fastseed.init(1); fastseed.libraries.register(); "
    code += f"print(set({libraries.NAMES}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.parametrize(
    "name, path",
    [
        ("tensorflow", "random.set_seed"),
        ("tensorflow", "compat.v1.set_random_seed"),
        ("tensorflow", "set_random_seed"),
        ("cupy", "random.seed"),
    ],
)
def test_they_follow_reseed(monkeypatch, name, path):
    fastseed.init(42, rank=0, world_size=1)
    seeds = planted(monkeypatch, name, path)
    assert libraries.imported() == (name,) and libraries.register() == (name,)
    fastseed.reseed(1, 7)
    fastseed.reseed(1, 8)
    assert seeds == [fastseed.key(name, task=1, epoch=epoch, rank=0) % 2**31 for epoch in (7, 8)]
    assert libraries.register() == ()  # it is
    later = planted(monkeypatch, "cupy" if name == "tensorflow" else "tensorflow", "random.seed")
    if name == "tensorflow":
        assert libraries.register() == ("cupy",)
        fastseed.reseed(1, 9)
        assert len(later) == 1 and len(seeds) == 3


def test_a_library_that_is_half_imported(monkeypatch):
    fastseed.init(42)
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    with pytest.raises(RuntimeError, match="tensorflow must be imported completely"):
        libraries.register()
    assert libraries.imported() == ("tensorflow",)


def test_wrong_names_and_moments(monkeypatch):
    with pytest.raises(ValueError, match=r"name must be one of \('tensorflow', 'cupy'\), got 'jax"):
        libraries.seed_function("jax")
    with pytest.raises(RuntimeError, match=r"fastseed.libraries.register: call fastseed.init"):
        libraries.register()
    with pytest.raises(RuntimeError, match=r"fastseed.libraries.jax_key: import jax first"):
        libraries.jax_key(task=0)


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
    key = fastseed.key("jax", **where)
    found = libraries.jax_key(**where, impl=impl)
    data = jax.random.key_data(found)
    assert [int(w) for w in data] == [key >> 32 * i & 0xFFFFFFFF for i in range(words)]
    assert str(data.dtype) == "uint32" and jax.dtypes.issubdtype(found.dtype, jax.dtypes.prng_key)


def test_jax_draws_from_it_and_other_streams_draw_otherwise(jax):
    fastseed.init(42, rank=0, world_size=1)
    draws = {
        jax.random.normal(libraries.jax_key(name, task=1, epoch=epoch), (4,)).tobytes()
        for name in ("jax", "dropout")
        for epoch in (0, 1)
    }
    again = jax.random.normal(libraries.jax_key("dropout", task=1, epoch=1), (4,)).tobytes()
    assert len(draws) == 4 and again in draws


def test_jax_keys_follow_the_default_generator(jax):
    fastseed.init(42)
    with jax.default_prng_impl("rbg"):
        assert jax.random.key_data(libraries.jax_key(task=0)).shape == (4,)
    with pytest.raises(ValueError):
        libraries.jax_key(task=0, impl="nonsense")
    with pytest.raises(ValueError, match=r"fastseed.key: epoch must be"):
        libraries.jax_key(task=0, epoch=-1)
