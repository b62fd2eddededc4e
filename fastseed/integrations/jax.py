"""Keys for JAX, which has no global generator: its functions take a key. Nothing is imported."""

from __future__ import annotations

import sys
from typing import Any

from .._utils import validation


def jax_key(key: int, *, impl: str | None = None) -> Any:
    """Convert a key of ``fastseed.derive_key`` to a new-style JAX key (``jax.random.key``).

    Args:
        key: 128 bits, in [0, 2**128).
        impl: the generator, which takes the lowest 2 (threefry2x32) or 4 words (rbg) of the key;
            None for JAX's default.

    Raises:
        TypeError, ValueError: ``key`` is invalid; a generator that JAX does not know.
        RuntimeError: JAX is not imported.

    Examples:
        >>> import jax
        >>> fastseed.init(42)
        >>> key = fastseed.integrations.jax_key(fastseed.derive_key("dropout", task=1, epoch=7))
        >>> jax.random.normal(key, (4,)).shape
        (4,)
    """
    function = "integrations.jax_key"
    key = validation.check_int(function, "key", key, 0, 2**128 - 1)
    jax = sys.modules.get("jax")
    if jax is None:
        raise RuntimeError(f"fastseed.{function}: import jax first")
    (count,) = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=impl))).shape
    if count > 4:
        raise validation.value_error(function, "impl", "a generator of at most 4 words", impl)
    words = [key >> 32 * i & 0xFFFFFFFF for i in range(count)]
    return jax.random.wrap_key_data(jax.numpy.array(words, dtype="uint32"), impl=impl)
