"""The contenders: each in a process of its own, fastseed's with the memory's ceilings.

A contender is a function from a :class:`.bench_device.BenchDevice` to groups. A group
prepares the entries of one case, whose answers are checked before they are timed in turns.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

from ..timing import Entry

Group = Callable[[], list[Entry]]

# In the order in which they run: what matters most first, in case the time runs out.
NAMES = (
    "fastseed-bulk", "fastseed-banks", "fastseed-pool", "torch", "curand", "jax-threefry2x32",
    "jax-philox4x32",
    "fastseed-digests", "loop-randn", "loop-seed", "jax-unsafe_rbg", "jax-rbg", "fastseed-extra",
)  # fmt: skip


def groups_of(name: str) -> Callable[..., list[Group]]:
    """The function of a contender; imports what it needs and nothing of the others."""
    module, _, rest = name.partition("-")
    file = {
        "fastseed-digests": "digests",
        "fastseed": "fastseed_cases",
        "torch": "torch_loops",
        "curand": "curand",
        "loop": "torch_loops",
        "jax": "jax",
    }
    found = importlib.import_module(f".{file.get(name) or file[module]}", __name__)
    if module == "jax":
        made: Callable[..., list[Group]] = functools.partial(found.groups, rest)
        return made
    function: Callable[..., list[Group]] = getattr(found, f"{name.replace('-', '_')}_groups")
    return function
