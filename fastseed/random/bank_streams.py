"""The origin of the streams of a bank, and a warning where two banks have the same ones."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

from .._utils.validation import value_error
from ..derivation import context
from ..derivation.streams import Stream

# The streams that a bank of each name was given last, and the bank. Threads may write at the same
# time: at worst a warning is missing.
_latest: dict[str, tuple[Any, Callable[[], Any]]] = {}


def origin(function: str) -> context.Origin:
    """Return what the keys of this process's streams are derived from; ValueError without keys."""
    found = context.origin(function)
    if found.scheme != "philox-v1":
        rule = "'philox-v1' (use reseed_from_seeds)"
        raise value_error(function, "scheme", rule, found.scheme)
    return found


def warn_of_equal_streams(bank: Any, stream: Stream) -> None:
    """Note the streams that a bank is given; warn if another one that still exists has them."""
    before, other = _latest.get(bank.name, (None, lambda: None))
    twin = other()
    if before == stream and twin is not None and twin is not bank:
        warnings.warn(
            f"fastseed.random.StreamBank.reseed: another bank with the name {bank.name!r} has "
            "the same streams in this scope; give each bank its own, StreamBank(n, name=...)",
            stacklevel=5,
        )
    _latest[bank.name] = stream, weakref.ref(bank)
