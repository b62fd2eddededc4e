"""The module that replaces ``fwr13y.seeder.pyt``: ``import fastseed.pyt as seeder``.

It has the names of that module of NVIDIA's framework-reproducibility 0.6.0. The seeds of ``init``
and ``reseed`` are fastseed's own, unless ``init`` is given ``scheme="fwr13y"``; ``SeedGen``
always gives those of fwr13y.
"""

from .seeder.api import get_master_seed, init, register_generator, reseed, unregister_generator
from .seeder.schemes.fwr13y import SeedGen, generate_master_seed_randomly
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
