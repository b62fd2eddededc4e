"""``scheme="fwr13y"``: the seeds of ``fwr13y.seeder.pyt`` (framework-reproducibility 0.6.0).

For jobs that started with NVIDIA's framework-reproducibility and need its bits. It has weaknesses:
neighbouring master seeds share almost all seeds, and a third task has the seeds of the next rank's
first one.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..._utils import validation
from ...derivation.scopes import Scope

if TYPE_CHECKING:
    from ..seeder import Seeder

MASTER_BITS = 31
"""Bits of a master seed that was not given: fwr13y's are below 2**31."""

_MAX_INT32 = 2147483647


class SeedGen:
    """The seeds of one rank, as fwr13y's class of this name gives them.

    Args:
        master_seed: any integer.
        ngpus: the number of ranks.
        local_rank: this rank, in [0, ngpus).

    Examples:
        >>> from fastseed.pyt import SeedGen
        >>> seed_gen = SeedGen(master_seed=42, ngpus=8, local_rank=3)
        >>> seed_gen(task=1, epoch=7)
        389803428
    """

    ntasks = 2

    def __init__(self, master_seed: int, ngpus: int, local_rank: int) -> None:
        given = {"master_seed": master_seed, "ngpus": ngpus, "local_rank": local_rank}
        for name, value in given.items():
            validation.check_int("pyt.SeedGen", name, value, -(2**64), 2**64)
        self.master_seed, self.ngpus, self.local_rank = master_seed, ngpus, local_rank

    def __call__(self, task: int, epoch: int, shared_seed: bool = False) -> int:
        """Return the 31-bit seed of this rank, or the one that all ranks share."""
        for name, value in {"task": task, "epoch": epoch}.items():
            validation.check_int("pyt.SeedGen", name, value, -(2**64), 2**64)
        if shared_seed:
            key = 2 * (self.master_seed + epoch) * self.ntasks + task
        else:
            key = (self.master_seed + epoch * self.ngpus + self.local_rank) * self.ntasks + task
        return random.Random(key).randint(0, _MAX_INT32)


def generate_master_seed_randomly() -> int:
    """Return a random master seed in [0, 2**31 - 1), from the operating system.

    Examples:
        >>> 0 <= fastseed.pyt.generate_master_seed_randomly() < 2**31 - 1
        True
    """
    return secrets.randbelow(_MAX_INT32)


def reseed(seeder: Seeder, at: Scope) -> dict[str, Exception]:
    """Reseed as fwr13y does, and in its order; return the exceptions of what failed."""
    if at.step != 0:
        raise validation.value_error("reseed", "step", "0 under scheme 'fwr13y'", at.step)
    functions: list[tuple[str, Callable[[int], object], bool]] = [
        ("torch", torch.manual_seed, False),
        ("numpy", np.random.seed, False),
        ("python", random.seed, False),
    ]
    for entry in sorted(seeder._registry.generators, key=lambda entry: entry.shared):
        functions.append((entry.name, entry.generator, entry.shared))
    seed_gen = SeedGen(seeder.master_seed, seeder.world_size, seeder.rank)
    failures: dict[str, Exception] = {}
    for name, function, shared in functions:
        try:
            function(seed_gen(at.task, at.epoch, shared_seed=shared))
        except Exception as error:
            failures[name] = error
    return failures
