"""Rollouts: a seed for each one, by its global identity, and the ledger that trains each once.

Importing it loads neither torch nor NumPy: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arrays import seeds
    from .contract import SeedReport, SeedRule, check_seed_contract
    from .ledger import Ledger
    from .single import seed
    from .tables import Rollout, RolloutSeeds, table
    from .units import Batch, LeaseError, Unit

__all__ = [
    "Batch",
    "LeaseError",
    "Ledger",
    "Rollout",
    "RolloutSeeds",
    "SeedReport",
    "SeedRule",
    "Unit",
    "check_seed_contract",
    "seed",
    "seeds",
    "table",
]

_HOME = {  # name: the module that defines it
    "Ledger": "ledger",
    "seed": "single",
    "seeds": "arrays",
    **dict.fromkeys(("Batch", "LeaseError", "Unit"), "units"),
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
