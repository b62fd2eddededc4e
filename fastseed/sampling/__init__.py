"""Tokens that do not depend on batches, slots or padding.

Importing it loads neither torch nor NumPy: each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from .._utils import lazy

if TYPE_CHECKING:
    from .speculative import Verified, accept_equal, accept_or_resample
    from .thresholds import find_threshold
    from .tokens import merge, sample

__all__ = [
    "Verified",
    "accept_equal",
    "accept_or_resample",
    "find_threshold",
    "merge",
    "sample",
]

_HOME = {
    "Verified": "speculative",
    "accept_equal": "speculative",
    "accept_or_resample": "speculative",
    "find_threshold": "thresholds",
    "merge": "tokens",
    "sample": "tokens",
}

__getattr__, __dir__ = lazy.attributes(__name__, _HOME)
