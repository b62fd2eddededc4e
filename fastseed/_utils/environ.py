"""The environment variables of fastseed, by their names.

``fastseed run`` and ``fastseed verify`` set the first three for the programs that they start.
``docs/determinism.md`` has what each means.
"""

from __future__ import annotations

import os

PREFIX = "FASTSEED_"
MASTER_SEED = "FASTSEED_MASTER_SEED"
DETERMINISTIC = "FASTSEED_DETERMINISTIC"
RUN_DIR = "FASTSEED_RUN_DIR"
BACKEND = "FASTSEED_BACKEND"
SIMD = "FASTSEED_SIMD"


def get(name: str) -> str | None:
    """Return the value of a variable; None if it is not set or empty."""
    return os.environ.get(name) or None


def settings() -> dict[str, str]:
    """Return the variables named ``FASTSEED_...`` that are set, by name."""
    return {name: os.environ[name] for name in sorted(os.environ) if name.startswith("FASTSEED_")}
