"""The same weights on any number of ranks, to the bit.

Importing it loads no torch: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .slots import Slot, SlotGradients

__all__ = ["Slot", "SlotGradients"]

_HOME = {"Slot": "slots", "SlotGradients": "slots"}  # name: the module that defines it


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
