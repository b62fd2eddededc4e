"""Keys for JAX, which has no global generator: its functions take a key. Nothing is imported."""

from __future__ import annotations

import sys
from typing import Any

from .._utils import validation
from ..seeder.seeder import current_seeder


def jax_key(
    name: str = "jax",
    *,
    task: int | None = None,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    index: int = 0,
    impl: str | None = None,
) -> Any:
    """Return ``fastseed.derive_key(name, ...)`` as a new-style JAX key (``jax.random.key``).

    Args:
        impl: the generator, which takes the lowest 2 (threefry2x32) or 4 words (rbg) of the key;
            None for JAX's default. The other arguments are those of ``fastseed.derive_key``.

    Raises:
        TypeError, ValueError: as ``fastseed.derive_key``; a generator that JAX does not know.
        RuntimeError: JAX is not imported, or ``fastseed.init`` was not called.

    Examples:
        >>> import jax
        >>> fastseed.init(42)
        >>> key = fastseed.integrations.jax_key("dropout", task=1, epoch=7)
        >>> jax.random.normal(key, (4,)).shape
        (4,)
    """
    function = "integrations.jax_key"
    jax = sys.modules.get("jax")
    if jax is None:
        raise RuntimeError(f"fastseed.{function}: import jax first")
    seeder = current_seeder(function)
    key = seeder.derive_key(
        name, task=task, epoch=epoch, step=step, rank=rank, worker=worker, index=index
    )
    (count,) = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=impl))).shape
    if count > 4:
        raise validation.value_error(function, "impl", "a generator of at most 4 words", impl)
    words = [key >> 32 * i & 0xFFFFFFFF for i in range(count)]
    return jax.random.wrap_key_data(jax.numpy.array(words, dtype="uint32"), impl=impl)
