"""The predecessor's import path: ``import fastseed.pyt as seeder``."""

from .api import (
    get_master_seed,
    init,
    register_generator,
    reseed,
    unregister_generator,
)
from .seeder import Seeder

__all__ = [
    "Seeder",
    "get_master_seed",
    "init",
    "register_generator",
    "reseed",
    "unregister_generator",
]
