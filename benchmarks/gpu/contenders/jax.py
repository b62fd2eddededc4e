"""JAX with one of its generators: ``vmap`` over keys, and ``split``.

JAX gives no events; calls are dispatched ahead and the clock stops when the last is done.
"""

from __future__ import annotations

import functools
from typing import Any

from ... import laws
from ...baselines import jax_draws
from ...case import Unavailable, expect
from ...laws import NORMAL, RANDINT, UNIFORM, Law
from .. import targets
from ..bench_device import BenchDevice
from ..timing import Call, Entry, WallClock
from . import Group

LAWS: dict[str, tuple[str, Law]] = {
    "bank.uniform": ("uniform", UNIFORM),
    "bank.normal": ("normal", NORMAL),
    "bank.randint": ("randint", RANDINT),
}


class Latest:
    """Remembers the last result, to wait for it."""

    def __init__(self) -> None:
        self.value: Any = None

    def wait(self) -> Any:
        """The last result, once it is there."""
        return None if self.value is None else self.value.block_until_ready()


def _entry(case: str, baseline: str, form: str, work: Any, given: Any, check: Any) -> Entry:
    latest = Latest()

    def call() -> None:
        latest.value = work(given)

    def checked() -> None:
        call()
        check(latest.wait())

    calls: list[Call] = [call]
    return Entry(case, baseline, form, calls, checked, WallClock(latest.wait))


def _on(bench: BenchDevice, generator: str) -> None:
    """JAX on the device; Unavailable where it has no such generator or no GPU."""
    library = jax_draws.jax()
    if bench.device == "cpu":
        jax_draws.on_cpu()
    elif library.default_backend() != "gpu":
        raise Unavailable("this JAX sees no GPU")
    if generator not in jax_draws.generators():
        raise Unavailable(f"this JAX has no generator {generator}")


def _draw(bench: BenchDevice, generator: str, function: str, n: int, length: int, size: str
          ) -> list[Entry]:  # fmt: skip
    _on(bench, generator)
    n = bench.size(n)
    name, law = LAWS[function]
    draw, keys = jax_draws.drawer(name, length), jax_draws.keys(generator, n)

    def check(made: Any) -> None:
        some = made[: max(4096, 2**20 // length)]  # a part is copied to the host
        laws.expect_baseline(law, some, (min(n, len(some)), length), targets.JAX)
        expect(len(made) == n, f"{len(made)} rows")

    case = f"{function}/cuda/{size}"
    return [_entry(case, targets.JAX, generator, draw, keys, check)]


def _split(bench: BenchDevice, generator: str) -> list[Entry]:
    _on(bench, generator)
    n = bench.size(10**8)

    def check(made: Any) -> None:
        expect(len(made) == n, f"{len(made)} keys")
        expect(len({tuple(row) for row in made[:1000].tolist()}) == min(n, 1000), "equal keys")

    baseline = targets.SPLIT if generator == jax_draws.DEFAULT else targets.SPLIT_OTHERS
    split, key = jax_draws.splitter(n), jax_draws.key(generator)
    return [_entry("derive_keys/cuda/1e8", baseline, generator, split, key, check)]


def groups(generator: str, bench: BenchDevice) -> list[Group]:
    """Everything that this generator contends in."""
    draw = functools.partial(_draw, bench, generator)
    return [
        lambda: draw("bank.normal", 65536, 1024, "65536x1024"),
        lambda: draw("bank.uniform", 65536, 1024, "65536x1024"),
        lambda: _split(bench, generator),
        lambda: draw("bank.uniform", 10**6, 4, "1e6x4"),
        lambda: draw("bank.normal", 10**6, 4, "1e6x4"),
        lambda: draw("bank.randint", 65536, 1024, "65536x1024"),
    ]
