"""Tokens that do not depend on batches, slots or padding.

Importing it loads neither torch nor NumPy: each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from .._utils import lazy

if TYPE_CHECKING:
    from .thresholds import find_threshold
    from .tokens import accept_equal, merge, sample

__all__ = ["accept_equal", "find_threshold", "merge", "sample"]

_NAMES = {  # by the module that defines them
    "thresholds": "find_threshold",
    "tokens": "accept_equal merge sample",
}

__getattr__, __dir__ = lazy.attributes(__name__, _NAMES)
