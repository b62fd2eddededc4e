"""Tokens and rollouts that do not depend on batches, chunks or workers.

Importing it loads neither torch nor NumPy: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rollouts import Rollout, RolloutSeeds, rollout_seeds

__all__ = ["Rollout", "RolloutSeeds", "rollout_seeds"]

_HOME = {
    "Rollout": "rollouts",
    "RolloutSeeds": "rollouts",
    "rollout_seeds": "rollouts",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
