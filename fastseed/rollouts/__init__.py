"""Rollouts: a seed for each one, by its global identity.

Importing it loads neither torch nor NumPy: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arrays import seeds
    from .contract import SeedReport, SeedRule, check_seed_contract
    from .single import seed
    from .tables import Rollout, RolloutSeeds, table

__all__ = [
    "Rollout",
    "RolloutSeeds",
    "SeedReport",
    "SeedRule",
    "check_seed_contract",
    "seed",
    "seeds",
    "table",
]

_HOME = {  # name: the module that defines it
    "seed": "single",
    "seeds": "arrays",
    **dict.fromkeys(("SeedReport", "SeedRule", "check_seed_contract"), "contract"),
    **dict.fromkeys(("Rollout", "RolloutSeeds", "table"), "tables"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
