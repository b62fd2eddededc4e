"""Run something in another scope, of which the open blocks of ``keyed`` do not hear."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .keyed import _open, outside_blocks


@contextlib.contextmanager
def apart_from_blocks() -> Iterator[None]:
    """Leave this thread's blocks for a while in which the scope is another one and comes back."""
    before = {block: block.has_moved for block in tuple(_open)}
    try:
        with outside_blocks():
            yield
    finally:
        for block, has_moved in before.items():
            block.has_moved = has_moved
