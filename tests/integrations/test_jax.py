"""Keys for JAX, with JAX itself."""

import sys

import pytest

import fastseed
from fastseed.integrations import jax_key


@pytest.fixture(autouse=True)
def not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)


def test_jax_is_imported_first():
    with pytest.raises(RuntimeError, match=r"fastseed.integrations.jax_key: import jax first"):
        jax_key(7)


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
    found = jax_key(key, impl=impl)
    data = jax.random.key_data(found)
    assert [int(w) for w in data] == [key >> 32 * i & 0xFFFFFFFF for i in range(words)]
    assert str(data.dtype) == "uint32" and jax.dtypes.issubdtype(found.dtype, jax.dtypes.prng_key)


def test_jax_keys_follow_the_default_generator(jax):
    with jax.default_prng_impl("rbg"):
        assert jax.random.key_data(jax_key(7)).shape == (4,)
    with pytest.raises(ValueError):
        jax_key(7, impl="nonsense")
    for key in (-1, 2**128):
        with pytest.raises(ValueError, match=r"fastseed.integrations.jax_key: key must be"):
            jax_key(key)
