"""``scheme="fwr13y"``: the seeds of ``fwr13y.seeder.pyt`` (framework-reproducibility 0.6.0).

For jobs that started on the predecessor and must go on with its bits. It has its weaknesses too
(neighbouring master seeds share almost all seeds, a third task meets the next rank's first one);
the tests show them beside the default scheme.
"""

# Seeding by hand is what it does.
# fastseed: ignore-file[FS101]

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

MASTER_BITS = 31
"""Bits of a master seed that was not given: the predecessor's are below 2**31."""

_TASKS = 2
_MAX_INT32 = 2147483647


def seed(master: int, ngpus: int, rank: int, task: int, epoch: int, *, shared: bool = False) -> int:
    """The 31-bit seed of a rank, or the one that all ranks share, at (task, epoch)."""
    if shared:
        key = _TASKS * (master + epoch) * _TASKS + task
    else:
        key = (master + epoch * ngpus + rank) * _TASKS + task
    return random.Random(key).randint(0, _MAX_INT32)


def reseed_libraries(value: int) -> Iterable[tuple[str, Callable[[], object]]]:
    """The predecessor's calls in its order, each under the name of the stream it stands for."""
    yield "torch", lambda: torch.manual_seed(value)
    yield "numpy", lambda: np.random.seed(value)
    yield "python", lambda: random.seed(value)


def reseed(
    master: int, ngpus: int, rank: int, task: int, epoch: int, entries: Iterable[Any]
) -> dict[str, Exception]:
    """The libraries and the registered functions; what those raised that failed, by name."""
    calls = list(reseed_libraries(seed(master, ngpus, rank, task, epoch)))
    for shared in (False, True):  # the predecessor's order
        value = seed(master, ngpus, rank, task, epoch, shared=shared)
        calls += [(e.name, _call(e.generator, value)) for e in entries if e.shared is shared]
    failures: dict[str, Exception] = {}
    for name, call in calls:
        try:
            call()
        except Exception as error:
            failures[name] = error
    return failures


def _call(function: Callable[[int], object], value: int) -> Callable[[], object]:
    return lambda: function(value)
