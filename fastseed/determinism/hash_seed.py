"""The seed of Python's string hashes, which fixes the order of sets of strings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

MAX_SEED = 2**32 - 1
VARIABLE = "PYTHONHASHSEED"


def parse(value: str | None) -> int | None:
    """Return the seed that a value of the variable fixes; None if it fixes none."""
    if value is None or not (value.isascii() and value.isdigit() and len(value) <= 20):
        return None
    seed = int(value)
    return seed if seed <= MAX_SEED else None


def found() -> tuple[str | None, int | None]:
    """Return the variable as it is now, and the seed in use (None: random)."""
    now = os.environ.get(VARIABLE)
    if not sys.flags.hash_randomization:
        return now, 0
    seed = None if sys.flags.ignore_environment else parse(_initial(now))
    return now, seed or None  # hashes are randomised, so that the seed in use is not 0


def _initial(now: str | None) -> str | None:
    """Return the variable at the start of this process; ``now`` where that cannot be read."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return now
    values = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    if not values:  # overwritten by what sets a process's title
        return now
    value = values.get(VARIABLE.encode())
    return None if value is None else value.decode("ascii", "replace")
