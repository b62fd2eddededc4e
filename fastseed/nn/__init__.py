"""Randomness inside a model that does not depend on how the model is laid out over devices.

Importing it loads no torch: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import functional as functional
    from . import init as init
    from .dropout.convert import convert, revert, shard_inputs
    from .dropout.layers import Dropout, Dropout1d, Dropout2d, Dropout3d
    from .dropout.rows import data_rows, label, rows
    from .init.construct import construct
    from .init.mode import initialize

__all__ = [
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "construct",
    "convert",
    "data_rows",
    "initialize",
    "label",
    "revert",
    "rows",
    "shard_inputs",
]

_HOME = {  # name: the module that defines it
    "construct": "init.construct",
    "initialize": "init.mode",
    **dict.fromkeys(("convert", "revert", "shard_inputs"), "dropout.convert"),
    **dict.fromkeys(("Dropout", "Dropout1d", "Dropout2d", "Dropout3d"), "dropout.layers"),
    **dict.fromkeys(("data_rows", "label", "rows"), "dropout.rows"),
}
_MODULES = ("functional", "init")  # public modules


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
