"""``enforce_reproducibility``: one line that makes a script reproducible."""

from __future__ import annotations

import logging
import sys

from .._utils import validation
from ..derivation import context, streams
from ..determinism.switches import deterministic
from ..generators import frameworks
from . import api
from .seeder import Seeder

logger = logging.getLogger("fastseed")


def enforce_reproducibility(seed: int | None = None, *, warn_only: bool = False) -> int:
    """Seed everything, and with a given seed also be deterministic.

    Calls ``fastseed.init(seed)``, registers TensorFlow and CuPy if they are imported, and calls
    ``fastseed.reseed(0)``. Without a seed one is generated, or taken from ``FASTSEED_MASTER_SEED``,
    and nothing is slower. The line ``Using seed: N`` has the seed that repeats the run; it goes to
    the log at level INFO, or to standard error if the log does not take it.

    Args:
        seed: [0, 2**64), or None. With a seed ``fastseed.deterministic`` is called too.
        warn_only: operations without a deterministic algorithm warn instead of raising.

    Returns:
        The seed in use, the same on all ranks.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: as ``fastseed.deterministic``.

    Examples:
        >>> import fastseed, random
        >>> seed = fastseed.enforce_reproducibility()
        >>> number = random.random()
        >>> fastseed.init(seed)
        >>> fastseed.reseed(0)
        >>> random.random() == number
        True
    """
    validation.check_bool("enforce_reproducibility", "warn_only", warn_only)
    if seed is not None:
        seed = validation.check_int("enforce_reproducibility", "seed", seed, 0, streams.MAX_MASTER)
    api.init(seed)
    seeder: Seeder = context.current("enforce_reproducibility")
    if seed is not None:
        deterministic(warn_only=warn_only)
    frameworks.register()
    seeder.reseed(0)
    if seeder.rank == 0:
        _say(f"Using seed: {seeder.master_seed}")
    return seeder.master_seed


def _say(line: str) -> None:
    """Log a line, or print it on standard error if the log does not take it."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info(line)
    else:
        print(line, file=sys.stderr, flush=True)
