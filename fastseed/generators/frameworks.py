"""TensorFlow, CuPy and JAX, if the script has imported them. Nothing is imported here.

TensorFlow and CuPy have global generators, which follow ``reseed`` after :func:`register`. JAX has
none: its functions take a key, and :func:`jax_key` makes one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .._utils import validation
from ..derivation import context

# The first attribute that exists is the seed function; TensorFlow 1 lacks `tf.random.set_seed`.
_SEED_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "tensorflow": ("random.set_seed", "compat.v1.set_random_seed", "set_random_seed"),
    "cupy": ("random.seed",),
}


def seed_function(name: str) -> Callable[[int], Any] | None:
    """Return the function that seeds a library's global generator; None if it is not imported.

    Args:
        name: ``"tensorflow"`` or ``"cupy"`` (whose function seeds the current device).

    Raises:
        ValueError: ``name`` is another library.
        RuntimeError: the library has no such function, because its import has not finished.
    """
    function = "generators.frameworks.seed_function"
    paths = _SEED_FUNCTIONS[validation.check_choice(function, "name", name, tuple(_SEED_FUNCTIONS))]
    module = sys.modules.get(name)
    if module is None:
        return None
    for path in paths:
        found: Any = module
        for part in path.split("."):
            found = getattr(found, part, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
    raise RuntimeError(f"fastseed.{function}: import {name} completely first: it has no {paths[0]}")


def register() -> tuple[str, ...]:
    """Register the seed functions of TensorFlow and CuPy, if imported, under their names.

    Each gets a seed of 31 bits. A second call registers what was imported since the first one.

    Returns:
        The names that this call registered.

    Raises:
        RuntimeError: before ``fastseed.init``; or as :func:`seed_function`.

    Example:
        >>> import fastseed
        >>> from fastseed.generators import frameworks
        >>> fastseed.init(42)
        >>> frameworks.register()  # neither library was imported
        ()
    """
    seeder = context.current("generators.frameworks.register")
    wanted = [name for name in _SEED_FUNCTIONS if seeder.registry.find(name) is None]
    found = {name: seed_function(name) for name in wanted}
    new = {name: function for name, function in found.items() if function is not None}
    for name, function in new.items():
        seeder.register_generator(function, name=name)
    return tuple(new)


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

    Its words are those of the key, lowest first, as many as the generator takes: 2 of 32 bits for
    threefry2x32, 4 for rbg and unsafe_rbg.

    Args:
        name: the stream's name.
        task: as :func:`fastseed.derive_key`, like the next five.
        epoch: the epoch.
        step: the step.
        rank: the rank.
        worker: the worker.
        index: the index.
        impl: the generator; None for JAX's default (``jax_default_prng_impl``).

    Raises:
        TypeError, ValueError: as ``fastseed.derive_key``; a generator that JAX does not know.
        RuntimeError: JAX is not imported, or ``fastseed.init`` was not called.

    Example:
        >>> import jax
        >>> fastseed.init(42)
        >>> key = fastseed.integrations.jax_key("dropout", task=1, epoch=7)
        >>> jax.random.normal(key, (4,)).shape
        (4,)
    """
    function = "generators.frameworks.jax_key"
    jax = sys.modules.get("jax")
    if jax is None:
        raise RuntimeError(f"fastseed.{function}: import jax first")
    seeder = context.current(function)
    key = seeder.derive_key(
        name, task=task, epoch=epoch, step=step, rank=rank, worker=worker, index=index
    )
    (count,) = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=impl))).shape
    if count > 4:
        raise validation.value_error(function, "impl", "a generator of at most 4 words", impl)
    words = [key >> 32 * i & 0xFFFFFFFF for i in range(count)]
    return jax.random.wrap_key_data(jax.numpy.array(words, dtype="uint32"), impl=impl)
