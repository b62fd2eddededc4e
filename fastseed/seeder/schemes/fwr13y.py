"""``scheme="fwr13y"``: the seeds of ``fwr13y.seeder.pyt`` (framework-reproducibility 0.6.0).

For jobs that started with NVIDIA's framework-reproducibility and need its bits. It has weaknesses:
neighbouring master seeds share almost all seeds, and a third task has the seeds of the next rank's
first one.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator

import numpy as np
import torch

from ..._utils import validation
from ...derivation.forks import Ancestry
from ...derivation.scopes import Scope
from ..registry import Registry

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
        self.master_seed, self.ngpus, self.local_rank = master_seed, ngpus, local_rank

    def __call__(self, task: int, epoch: int, shared_seed: bool = False) -> int:
        """Return the 31-bit seed of this rank, or the one that all ranks share."""
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


class Fwr13yScheme:
    """Reseeds the three default libraries and registered functions as fwr13y does."""

    name = "fwr13y"

    def __init__(self, rank: int, world_size: int, registry: Registry) -> None:
        self._rank, self._world_size, self._registry = rank, world_size, registry

    def reseed(self, master_seed: int, ancestry: Ancestry, at: Scope) -> dict[str, Exception]:
        """Reseed everything; return the exceptions of what failed, by stream name."""
        if at.step != 0:
            rule = "0 under scheme 'fwr13y'"
            raise validation.value_error("reseed", "step", rule, at.step)
        failures: dict[str, Exception] = {}
        seed_gen = SeedGen(master_seed, self._world_size, self._rank)
        for name, function, shared in self._functions():
            try:
                function(seed_gen(at.task, at.epoch, shared_seed=shared))
            except Exception as error:
                failures[name] = error
        return failures

    def _functions(self) -> Iterator[tuple[str, Callable[[int], object], bool]]:
        """Yield name, seed function and whether its seed is shared, in fwr13y's order."""
        yield "torch", torch.manual_seed, False
        yield "numpy", np.random.seed, False
        yield "python", random.seed, False
        for shared in (False, True):
            for entry in self._registry.generators:
                if entry.shared is shared:
                    yield entry.name, entry.generator, shared
