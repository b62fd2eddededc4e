"""Tokens that do not depend on batches, slots or padding.

Importing it loads neither torch nor NumPy: each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from .._utils import lazy

if TYPE_CHECKING:
    from .tokens import accept_equal, sample

__all__ = ["accept_equal", "sample"]

_NAMES = {"tokens": "accept_equal sample"}  # by the module that defines them

__getattr__, __dir__ = lazy.attributes(__name__, _NAMES)
