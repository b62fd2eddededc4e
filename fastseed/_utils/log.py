"""The log of the library, and a warning that comes once per process."""

from __future__ import annotations

import functools
import logging
from collections.abc import Hashable

logger = logging.getLogger("fastseed")


@functools.cache
def warn_once(message: str, *values: Hashable) -> None:
    """Log a warning, unless one of the same text and values was logged before."""
    logger.warning(message, *values)
