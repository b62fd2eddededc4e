"""NVIDIA's fwr13y seeder (package framework-reproducibility)."""

from __future__ import annotations

from typing import Any

from ..case import Unavailable

LABEL = "fwr13y"


def _missing() -> Unavailable:
    return Unavailable("framework-reproducibility is not installed")


def seeder() -> Any:
    """The module ``fwr13y.seeder.pyt``.

    It warns on stderr when coordinates repeat, and remembers all of them: cases use fresh ones.
    """
    try:
        from fwr13y.seeder import pyt
    except ImportError as error:
        raise _missing() from error
    return pyt


def seed_gen(master: int, ngpus: int, local_rank: int) -> Any:
    """Its seed generator: ``gen(task, epoch)`` gives a seed of 31 bits."""
    try:
        from fwr13y.seeder.seed_gen import SeedGen
    except ImportError as error:
        raise _missing() from error
    return SeedGen(master, ngpus, local_rank)
