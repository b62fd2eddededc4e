"""Randomness inside a model that does not depend on how the model is laid out over devices.

Importing it loads no torch: each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from .._utils import lazy

if TYPE_CHECKING:
    from . import functional as functional
    from .dropout.convert import convert, revert, shard_inputs
    from .dropout.layers import Dropout, Dropout1d, Dropout2d, Dropout3d
    from .dropout.rows import label, rows
    from .initialization.construct import construct
    from .initialization.mode import initialize

__all__ = [
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "construct",
    "convert",
    "functional",
    "initialize",
    "label",
    "revert",
    "rows",
    "shard_inputs",
]

_HOME = {  # name: the module that defines it
    "construct": "initialization.construct",
    "initialize": "initialization.mode",
    **dict.fromkeys(("convert", "revert", "shard_inputs"), "dropout.convert"),
    **dict.fromkeys(("Dropout", "Dropout1d", "Dropout2d", "Dropout3d"), "dropout.layers"),
    **dict.fromkeys(("label", "rows"), "dropout.rows"),
}
_MODULES = ("functional",)  # public modules

__getattr__, __dir__ = lazy.attributes(__name__, _HOME, _MODULES)
