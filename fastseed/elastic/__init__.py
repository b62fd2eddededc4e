"""The same weights on any number of ranks, to the bit.

Importing it loads no torch: each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from .._utils import lazy

if TYPE_CHECKING:
    from .clipping import clip_grad_norm_, get_total_norm
    from .means import mean
    from .slots import Slot, SlotGradients

__all__ = ["Slot", "SlotGradients", "clip_grad_norm_", "get_total_norm", "mean"]

_NAMES = {  # by the module that defines them
    "slots": "Slot SlotGradients",
    "clipping": "clip_grad_norm_ get_total_norm",
    "means": "mean",
}

__getattr__, __dir__ = lazy.attributes(__name__, _NAMES)
