"""Notice two stream banks that have the same streams."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

from ..derivation.streams import Stream

# The streams that a bank of each name was given last, and the bank. Threads may write at the same
# time: at worst a warning is missing.
_latest: dict[str, tuple[Stream, weakref.ref[Any]]] = {}


def warn_of_twin(bank: object, name: str, stream: Stream) -> None:
    """Warn if another bank of this name, which still exists, was given the same streams."""
    before = _latest.get(name)
    twin = before[1]() if before is not None and before[0] == stream else None
    if twin is not None and twin is not bank:
        warnings.warn(
            f"fastseed.random.StreamBank.reseed: another bank with the name {name!r} has "
            "the same streams in this scope; give each bank its own, StreamBank(n, name=...)",
            stacklevel=5,
        )
    _latest[name] = stream, weakref.ref(bank)
