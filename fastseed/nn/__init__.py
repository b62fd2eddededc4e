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
    from .initialization.mode import initialize
    from .perturbation.functions import apply_log, perturb_, perturbed

__all__ = [
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "apply_log",
    "convert",
    "functional",
    "initialize",
    "label",
    "perturb_",
    "perturbed",
    "revert",
    "rows",
    "shard_inputs",
]

_NAMES = {  # by the module that defines them
    "initialization.mode": "initialize",
    "perturbation.functions": "apply_log perturb_ perturbed",
    "dropout.convert": "convert revert shard_inputs",
    "dropout.layers": "Dropout Dropout1d Dropout2d Dropout3d",
    "dropout.rows": "label rows",
}
_MODULES = ("functional",)  # public modules

__getattr__, __dir__ = lazy.attributes(__name__, _NAMES, _MODULES)
