"""Inspections of checkpoints that have a limit of memory."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

from fastseed.tools import checkpoints


def inspect_within(path: Path, limit: int) -> tuple[Any, str]:
    """Return states and findings, or no states and the refusal, of at most ``limit`` bytes."""
    tracemalloc.start(1)
    try:
        found = checkpoints.inspect(path)
        return found.states, " ".join(found.findings)
    except ValueError as error:
        return (), str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < limit, peak


def words_of(difference: Any) -> int | None:
    """Return how many words the second state is further; None if they are on other streams."""
    if difference.text.startswith("equal but for"):
        return 0
    found = re.match(r"(\d+) words? (further|behind)", difference.text)
    return None if found is None else int(found[1]) * (1 if found[2] == "further" else -1)
