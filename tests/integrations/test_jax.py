"""Keys for JAX, with JAX itself."""

from __future__ import annotations

import sys

import pytest

import fastseed
from fastseed.integrations import jax_key


@pytest.fixture(autouse=True)
def not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)


def test_jax_is_imported_first():
    with pytest.raises(RuntimeError, match=r"fastseed.integrations.jax_key: import jax first"):
        jax_key(task=0)


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
    found = jax_key(**where, impl=impl)
    data = jax.random.key_data(found)
    assert [int(w) for w in data] == [key >> 32 * i & 0xFFFFFFFF for i in range(words)]
    assert str(data.dtype) == "uint32" and jax.dtypes.issubdtype(found.dtype, jax.dtypes.prng_key)


def test_without_a_task_it_is_of_the_last_reseed(jax):
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 2, 3)
    assert jax_key() == jax_key(task=1, epoch=2, step=3)


def test_jax_draws_from_it_and_other_streams_draw_otherwise(jax):
    fastseed.init(42, rank=0, world_size=1)
    draws = {
        jax.random.normal(jax_key(name, task=1, epoch=epoch), (4,)).tobytes()
        for name in ("jax", "dropout")
        for epoch in (0, 1)
    }
    again = jax.random.normal(jax_key("dropout", task=1, epoch=1), (4,)).tobytes()
    assert len(draws) == 4 and again in draws


def test_jax_keys_follow_the_default_generator(jax):
    fastseed.init(42)
    with jax.default_prng_impl("rbg"):
        assert jax.random.key_data(jax_key(task=0)).shape == (4,)
    with pytest.raises(ValueError):
        jax_key(task=0, impl="nonsense")
    with pytest.raises(ValueError, match=r"fastseed.derive_key: epoch must be"):
        jax_key(task=0, epoch=-1)
