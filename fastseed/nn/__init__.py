"""Randomness inside a model that does not depend on how the model is laid out over devices.

Importing it loads no torch: each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from .._utils import lazy

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

__getattr__, __dir__ = lazy.attributes(__name__, _HOME, _MODULES)
