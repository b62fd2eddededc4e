"""The environment variables of fastseed; ``docs/determinism.md`` says what each means."""

from __future__ import annotations

import os

PREFIX = "FASTSEED_"
MASTER_SEED = "FASTSEED_MASTER_SEED"
DETERMINISTIC = "FASTSEED_DETERMINISTIC"
RUN_DIR = "FASTSEED_RUN_DIR"
BACKEND = "FASTSEED_BACKEND"


def get(name: str) -> str | None:
    """Return the value of a variable; None if it is not set or empty."""
    return os.environ.get(name) or None
