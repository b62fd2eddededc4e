"""JAX: one key a stream and ``vmap``, jitted, with each of its generators."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..case import Side, Unavailable

# Those that some version has; `philox` names are for versions that add it.
GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg", "philox4x32", "philox")
DEFAULT = GENERATORS[0]
HOPELESS = 5.0  # times slower than the best: not looked at again


def jax() -> Any:
    """The library."""
    try:
        import jax as library
    except ImportError as error:
        raise Unavailable("JAX is not installed") from error
    return library


def on_cpu() -> None:
    """Leave a GPU alone, if JAX could use one."""
    jax().config.update("jax_platforms", "cpu")


def generators() -> list[str]:
    """Which of its generators this version has."""
    library, found = jax(), []
    for name in GENERATORS:
        try:
            library.random.key(0, impl=name)
        except (ValueError, KeyError, TypeError, NotImplementedError):
            continue
        found.append(name)
    return found


def drawer(law: str, length: int) -> Callable[[Any], Any]:
    """(n,) keys to (n, length) numbers, jitted: ``law`` is uniform, normal or randint."""
    library = jax()
    if law == "randint":
        draw = lambda key: library.random.randint(key, (length,), 0, 1000)  # noqa: E731
    else:
        draw = lambda key: getattr(library.random, law)(key, (length,), "float32")  # noqa: E731
    made: Callable[[Any], Any] = library.jit(library.vmap(draw))
    return made


def splitter(n: int) -> Callable[[Any], Any]:
    """One key to the raw words of n, jitted."""
    library = jax()

    def split(key: Any) -> Any:
        return library.random.key_data(library.random.split(key, n))

    made: Callable[[Any], Any] = library.jit(split)
    return made


def keys(name: str, n: int) -> Any:
    """n keys of a generator, ready on the device."""
    library = jax()
    return library.random.split(library.random.key(1, impl=name), n).block_until_ready()


def key(name: str) -> Any:
    """One key."""
    return jax().random.key(1, impl=name)


def _once(side: Side) -> float:
    side.run()  # compiles
    begun = time.perf_counter()
    side.run()
    return time.perf_counter() - begun


def _promising(sides: list[Side]) -> tuple[Side, ...]:
    """Without those that cannot be the fastest: some take seconds."""
    looks = [_once(side) for side in sides]
    return tuple(s for s, t in zip(sides, looks, strict=True) if t <= HOPELESS * min(looks))


def draw_sides(law: str, n: int, length: int) -> tuple[Side, ...]:
    """Every generator's way to n rows of ``length`` numbers."""
    draw = drawer(law, length)
    statement = "draw(keys).block_until_ready()"
    return _promising(
        [Side(f"JAX {g}", statement, {"draw": draw, "keys": keys(g, n)}) for g in generators()]
    )


def split_sides(n: int) -> tuple[Side, ...]:
    """Every generator's way to n keys."""
    split = splitter(n)
    statement = "split(key).block_until_ready()"
    return _promising(
        [Side(f"JAX {g}", statement, {"split": split, "key": key(g)}) for g in generators()]
    )
