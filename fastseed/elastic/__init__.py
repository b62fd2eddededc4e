"""The same weights on any number of ranks, to the bit.

Importing it loads no torch: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clipping import clip_grad_norm_, get_total_norm
    from .means import mean
    from .slots import Slot, SlotGradients

__all__ = ["Slot", "SlotGradients", "clip_grad_norm_", "get_total_norm", "mean"]

_HOME = {  # name: the module that defines it
    **dict.fromkeys(("Slot", "SlotGradients"), "slots"),
    **dict.fromkeys(("clip_grad_norm_", "get_total_norm"), "clipping"),
    "mean": "means",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
