"""The predecessor's import path: ``import fastseed.pyt as seeder``."""

from .seeder.api import get_master_seed, init, register_generator, reseed, unregister_generator
from .seeder.seeder import Seeder

__all__ = [
    "Seeder",
    "get_master_seed",
    "init",
    "register_generator",
    "reseed",
    "unregister_generator",
]
