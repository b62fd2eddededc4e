"""TensorFlow, CuPy and JAX, where a script has imported them already. None is imported here.

TensorFlow and CuPy have global generators, which follow ``reseed`` once :func:`register` was
called. JAX has none: its functions take a key, and :func:`jax_key` makes one of ``fastseed.derive_key``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .._utils import validation
from ..seeder import api

_SEEDERS: dict[str, tuple[str, ...]] = {
    # The first of these attributes that is there; TensorFlow 1 had none of `tf.random.set_seed`.
    "tensorflow": ("random.set_seed", "compat.v1.set_random_seed", "set_random_seed"),
    "cupy": ("random.seed",),
}
NAMES = (*_SEEDERS, "jax")


def imported() -> tuple[str, ...]:
    """Which of :data:`NAMES` this process has imported."""
    return tuple(name for name in NAMES if sys.modules.get(name) is not None)


def seed_function(name: str) -> Callable[[int], Any] | None:
    """What seeds the library's global generator with an int; None if it is not imported.

    TensorFlow: ``tf.random.set_seed``. CuPy: ``cupy.random.seed``, of the current device.

    Raises:
        ValueError: ``name`` is another library.
        RuntimeError: it is imported and has no such function (say, its import is under way).
    """
    if name not in _SEEDERS:
        raise ValueError(
            f"fastseed.generators.frameworks.seed_function: name must be one of {tuple(_SEEDERS)}, "
            f"got {validation.describe(name)}"
        )
    module = sys.modules.get(name)
    if module is None:
        return None
    for path in _SEEDERS[name]:
        found: Any = module
        for part in path.split("."):
            found = getattr(found, part, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
    raise RuntimeError(
        f"fastseed.generators.frameworks.seed_function: {name} must be imported completely, "
        f"got a module without {_SEEDERS[name][0]}"
    )


def register() -> tuple[str, ...]:
    """Let ``reseed`` seed TensorFlow and CuPy, where they are imported; the names it registered.

    They get streams of their own names, 31 bits of the key each. Calling it again, after another
    import, adds what is new.

    Raises:
        RuntimeError: ``fastseed.init`` was not called; or as :func:`seed_function`.
    """
    seeder = api.current("libraries.register")
    wanted = [name for name in _SEEDERS if seeder._registry.find(name) is None]
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
    """A new-style JAX key (``jax.random.key``) of ``fastseed.derive_key(name, …)``.

    Its words are the key's, lowest first, as many as the generator takes: 2 of 32 bits for
    threefry2x32, 4 for rbg and unsafe_rbg.

    Args:
        name, task, epoch, step, rank, worker, index: as ``fastseed.derive_key`` takes them.
        impl: the generator; None: what JAX is set to (``jax_default_prng_impl``).

    Raises:
        TypeError, ValueError: as ``fastseed.derive_key``; a generator that JAX does not know.
        RuntimeError: JAX is not imported, or ``fastseed.init`` was not called.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        raise RuntimeError("fastseed.generators.frameworks.jax_key: import jax first")
    key = api.key(name, task=task, epoch=epoch, step=step, rank=rank, worker=worker, index=index)
    (count,) = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=impl))).shape
    if count > 4:
        raise ValueError(
            f"fastseed.generators.frameworks.jax_key: impl must take at most 4 words, got {impl!r} with {count}"
        )
    words = [key >> 32 * i & 0xFFFFFFFF for i in range(count)]
    return jax.random.wrap_key_data(jax.numpy.array(words, dtype="uint32"), impl=impl)
