"""Randomness inside a model that does not depend on how the model is laid out over devices."""

from . import functional
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
