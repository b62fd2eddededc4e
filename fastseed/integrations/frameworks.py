"""TensorFlow, CuPy and JAX, if the script has imported them. Nothing is imported here.

TensorFlow and CuPy have global generators, which follow ``reseed`` after ``register``. JAX has
none: its functions take a key, and ``jax_key`` makes one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .._utils import validation
from ..seeder.seeder import current_seeder


def seed_functions() -> dict[str, Callable[[int], object]]:
    """Return the functions that seed the global generators of what is imported.

    CuPy's seeds the current device.
    """
    tensorflow, cupy = sys.modules.get("tensorflow"), sys.modules.get("cupy")
    found: dict[str, Callable[[int], object]] = {}
    if tensorflow is not None:
        found["tensorflow"] = tensorflow.random.set_seed
    if cupy is not None:
        found["cupy"] = cupy.random.seed
    return found


def register() -> tuple[str, ...]:
    """Register the seed functions of TensorFlow and CuPy, if imported, under their names.

    Each gets a seed of 31 bits. A second call registers what was imported since the first one.

    Returns:
        The names that this call registered.

    Raises:
        RuntimeError: before ``fastseed.init``.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> fastseed.integrations.register_frameworks()  # neither library was imported
        ()
    """
    seeder = current_seeder("integrations.register_frameworks")
    found = {n: f for n, f in seed_functions().items() if seeder._registry.find(n) is None}
    for name, function in found.items():
        seeder.register_generator(function, name=name)
    return tuple(found)


def jax_key(
    name: str = "jax",
    *,
    task: int,
    epoch: int = 0,
    step: int = 0,
    rank: int | None = None,
    worker: int = 0,
    index: int = 0,
    impl: str | None = None,
) -> Any:
    """Return ``fastseed.derive_key(name, ...)`` as a new-style JAX key (``jax.random.key``).

    Its words of 32 bits are those of the key, lowest first: 2 for threefry2x32, 4 for rbg. The
    arguments but ``impl`` are those of ``fastseed.derive_key``.

    Args:
        impl: the generator; None for JAX's default (``jax_default_prng_impl``).

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
