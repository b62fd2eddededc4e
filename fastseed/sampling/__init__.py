"""Tokens that do not depend on batches, slots or padding.

Importing it loads neither torch nor NumPy: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
