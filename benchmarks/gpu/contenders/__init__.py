"""The contenders: each in a process of its own, fastseed's with the memory's ceilings.

A contender is a function from a :class:`~benchmarks.gpu.place.Place` to groups: functions that make
the entries of one case ready, whose answers are checked and which are then timed in turns.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

from ..timing import Entry

Group = Callable[[], list[Entry]]

# In the order in which they run, so that what matters most is there when time runs out.
NAMES = (
    "ours-bulk", "ours-banks", "ours-pool", "torch", "curand", "jax-threefry2x32", "jax-philox4x32",
    "ours-digests", "loop-randn", "loop-seed", "jax-unsafe_rbg", "jax-rbg", "ours-extra",
)  # fmt: skip


def groups_of(name: str) -> Callable[..., list[Group]]:
    """The function of a contender; imports what it needs and nothing of the others."""
    module, _, rest = name.partition("-")
    file = {
        "ours-digests": "digests",
        "ours": "ours",
        "torch": "peers",
        "curand": "curand",
        "loop": "peers",
        "jax": "jax",
    }
    found = importlib.import_module(f".{file.get(name) or file[module]}", __name__)
    if module == "jax":
        made: Callable[..., list[Group]] = functools.partial(found.groups, rest)
        return made
    function: Callable[..., list[Group]] = getattr(found, f"{name.replace('-', '_')}_groups")
    return function
