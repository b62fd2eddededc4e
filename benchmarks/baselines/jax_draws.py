"""JAX: one key a stream and ``vmap``, jitted, with each of its generators."""

from __future__ import annotations

import time
from typing import Any

from ..case import Side, Unavailable

# Those that some version has; `philox` names are for versions that add it.
GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg", "philox4x32", "philox")
HOPELESS = 5.0  # times slower than the best: not looked at again


def jax(device: str) -> Any:
    """The library, which leaves a GPU alone where the CPU is timed."""
    try:
        import jax as library
    except ImportError as error:
        raise Unavailable("JAX is not installed") from error
    if device == "cpu":
        library.config.update("jax_platforms", "cpu")
    elif library.default_backend() != "gpu":
        raise Unavailable("this JAX sees no GPU")
    return library


def generators(library: Any) -> list[str]:
    """Which of its generators this version has."""
    found = []
    for name in GENERATORS:
        try:
            library.random.key(0, impl=name)
        except (ValueError, KeyError, TypeError, NotImplementedError):
            continue
        found.append(name)
    return found


def _once(side: Side) -> float:
    side.run()  # compiles
    begun = time.perf_counter()
    side.run()
    return time.perf_counter() - begun


def _promising(sides: list[Side]) -> list[Side]:
    """Without those that cannot be the fastest: some take seconds."""
    looks = [_once(side) for side in sides]
    return [s for s, t in zip(sides, looks, strict=True) if t <= HOPELESS * min(looks)]


def draw_sides(law: str, n: int, length: int, device: str) -> list[Side]:
    """Every generator's way to n rows of ``length`` numbers, uniform or normal."""
    library = jax(device)
    draw = getattr(library.random, law)
    many = library.jit(library.vmap(lambda key: draw(key, (length,), "float32")))
    sides = []
    for name in generators(library):
        keys = library.random.split(library.random.key(1, impl=name), n).block_until_ready()
        names = {"draw": many, "keys": keys}
        sides.append(Side(f"JAX {name}", "draw(keys).block_until_ready()", names))
    return _promising(sides)


def split_sides(n: int, device: str) -> list[Side]:
    """Every generator's way to the raw words of n keys."""
    library = jax(device)
    split = library.jit(lambda key: library.random.key_data(library.random.split(key, n)))
    statement = "split(key).block_until_ready()"
    return _promising([
        Side(f"JAX {name}", statement, {"split": split, "key": library.random.key(1, impl=name)})
        for name in generators(library)
    ])  # fmt: skip
