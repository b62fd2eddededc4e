"""The module that replaces ``fwr13y.seeder.pyt``: ``import fastseed.pyt as seeder``.

It has the names of that module of NVIDIA's framework-reproducibility 0.6.0. The seeds of ``init``
and ``reseed`` are fastseed's own, unless ``init`` is given ``scheme="fwr13y"``; ``SeedGen``
always gives those of fwr13y. They have weaknesses: neighbouring master seeds share almost all
seeds, and a third task has the seeds of the next rank's first one.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ._utils import validation
from .derivation import context, scopes
from .determinism import switches
from .seeder import api
from .seeder import start as starting
from .seeder.errors import ReseedError
from .seeder.process_lock import process
from .seeder.seeder import Seeder

__all__ = [
    "SeedGen",
    "Seeder",
    "generate_master_seed_randomly",
    "get_master_seed",
    "init",
    "register_generator",
    "reseed",
    "unregister_generator",
]

_MASTER_BITS = 31
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


class _Fwr13y:
    """The generators of a process under ``scheme="fwr13y"``, which ``reseed`` sets."""

    def __init__(self, seed_gen: SeedGen, is_agreed: bool) -> None:
        self.seed_gen, self._is_agreed = seed_gen, is_agreed
        self._registered: list[tuple[Callable[[int], object], bool]] = []

    def get_master_seed(self) -> int:
        return self.seed_gen.master_seed

    def register_generator(self, gen: object, shared: bool) -> None:
        function = "pyt.register_generator"
        shared = validation.check_bool(function, "shared", shared)
        if not callable(gen):
            rule = "a callable under scheme 'fwr13y'"
            raise validation.type_error(function, "gen", rule, gen)
        if shared and not self._is_agreed:
            raise RuntimeError(
                f"fastseed.{function}: ranks cannot share a stream before they agree on a master "
                "seed: give init a master seed, or call torch.distributed.init_process_group before"
            )
        self._registered.append((gen, shared))

    def unregister_generator(self, gen: object) -> None:
        at = next((i for i, (known, _) in enumerate(self._registered) if known == gen), None)
        if at is None:
            rule = "a registered generator"
            raise validation.value_error("pyt.unregister_generator", "gen", rule, gen)
        del self._registered[at]

    def reseed(self, task: int, epoch: int, step: int) -> None:
        """Set all generators as fwr13y does, and in its order."""
        context.refuse_worker("reseed")
        scopes.check_scope("reseed", task, epoch, step)
        if step != 0:
            raise validation.value_error("reseed", "step", "0 under scheme 'fwr13y'", step)
        functions: list[tuple[str, Callable[[int], object], bool]] = [
            ("torch", torch.manual_seed, False),
            ("numpy", np.random.seed, False),
            ("python", random.seed, False),
            *((f"generator/{number}", *entry) for number, entry in enumerate(self._registered)),
        ]
        failures: dict[str, Exception] = {}
        with process.lock:
            process.refuse_nested("reseed")
            with process.reseeding:
                for name, function, shared in sorted(functions, key=lambda row: row[2]):
                    try:
                        function(self.seed_gen(task, epoch, shared_seed=shared))
                    except Exception as error:
                        failures[name] = error
        if failures:
            raise ReseedError(failures)


_fwr13y: _Fwr13y | None = None


def _serving() -> Any:
    """Return what ``init(scheme="fwr13y")`` made, or ``api`` if another ``init`` came after it."""
    return api if _fwr13y is None or context.seeder is not None else _fwr13y


def init(
    master_seed: int | None = None,
    ngpus: int | None = None,
    local_rank: int | None = None,
    *,
    scheme: str = "philox-v1",
) -> None:
    """Seed this process, as ``fastseed.init``, which describes the other arguments.

    Args:
        scheme: ``"philox-v1"``, or ``"fwr13y"`` for the seeds of fwr13y bit for bit. Under that
            scheme ``init`` changes no generator, as fwr13y's. The functions of this module serve
            it; all other functions of fastseed need ``fastseed.init``, which ends it.

    Raises:
        TypeError, ValueError, RuntimeError, TimeoutError: as ``fastseed.init``.

    Examples:
        >>> import fastseed.pyt as seeder
        >>> seeder.init(42)
        >>> seeder.get_master_seed()
        42
    """
    global _fwr13y
    scheme = validation.check_choice("init", "scheme", scheme, ("philox-v1", "fwr13y"))
    if scheme == "philox-v1":
        api.init(master_seed, ngpus, local_rank)
        _fwr13y = None
        return
    mode, place = switches.requested("init"), (ngpus, local_rank)
    job, seed, is_agreed = starting.join_job(master_seed, place, _MASTER_BITS, correct=False)
    _fwr13y = _Fwr13y(SeedGen(seed, job.world_size, job.rank), is_agreed)
    starting.replace_seeder(None)
    if job.rank == 0:
        starting.report(job, seed, is_given=master_seed is not None, shows=True)
    if mode is not None:
        switches.deterministic(warn_only=mode)


def get_master_seed() -> int:
    """Return the master seed in use, as ``fastseed.get_master_seed``.

    Examples:
        >>> fastseed.pyt.init(42)
        >>> fastseed.pyt.get_master_seed()
        42
    """
    return int(_serving().get_master_seed())


def reseed(task: int, epoch: int = 0, step: int = 0) -> None:
    """Give every generator of this process its state at (task, epoch), as ``fastseed.reseed``.

    Examples:
        >>> fastseed.pyt.init(42)
        >>> fastseed.pyt.reseed(1, epoch=3)
    """
    _serving().reseed(task, epoch, step)


def register_generator(gen: object, shared: bool = False) -> None:
    """Let ``reseed`` set one more generator, as ``fastseed.register_generator``.

    Args:
        gen: a generator; under scheme ``"fwr13y"`` a callable ``f(seed: int)``.
        shared: the same stream on all ranks.

    Examples:
        >>> import random
        >>> fastseed.pyt.init(42)
        >>> fastseed.pyt.register_generator(random.Random().seed, shared=True)
    """
    _serving().register_generator(gen, shared)


def unregister_generator(gen: object) -> None:
    """Forget a registered generator, as ``fastseed.unregister_generator``.

    Args:
        gen: the registered object.

    Examples:
        >>> import random
        >>> fastseed.pyt.init(42)
        >>> noise = random.Random()
        >>> fastseed.pyt.register_generator(noise.seed)
        >>> fastseed.pyt.unregister_generator(noise.seed)
    """
    _serving().unregister_generator(gen)
