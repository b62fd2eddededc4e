"""``enforce_reproducibility``: one line that makes a script reproducible."""

from __future__ import annotations

import logging
import sys

from .._utils import validation
from ..derivation import streams
from ..determinism.switches import deterministic
from ..generators import frameworks
from . import api

logger = logging.getLogger("fastseed")


def enforce_reproducibility(seed: int | None = None, *, warn_only: bool = False) -> int:
    """Seed everything; with a seed of one's own be deterministic as well.

    ``init(seed)``, :func:`fastseed.generators.frameworks.register` and ``reseed(0)``. Without a seed one is
    drawn (``FASTSEED_MASTER_SEED`` decides where it is set) and nothing gets slower: the run can be
    repeated with what the line ``Using seed: N`` says, which goes to the log, or to standard error
    where the log does not take it. With a seed ``deterministic(warn_only=warn_only)`` follows.

    Args:
        seed: [0, 2**64), or None.
        warn_only: operations without a deterministic algorithm warn, rather than raise.

    Returns:
        The seed in use, the same on all ranks.

    Raises:
        TypeError, ValueError: as ``init``.
        RuntimeError: as ``deterministic``.
    """
    if not isinstance(warn_only, bool):
        raise TypeError(
            "fastseed.enforce_reproducibility: warn_only must be a bool, "
            f"got {validation.describe(warn_only)} of type {type(warn_only).__name__}"
        )
    if seed is not None:
        seed = validation.check_int("enforce_reproducibility", "seed", seed, 0, streams.MAX_MASTER)
    api.init(seed)
    seeder = api.current("enforce_reproducibility")
    if seed is not None:
        deterministic(warn_only=warn_only)
    frameworks.register()
    seeder.reseed(0)
    if seeder.rank == 0:
        _say(f"Using seed: {seeder.master_seed}")
    return seeder.master_seed


def _say(line: str) -> None:
    """To the log; a seed that nobody sees is lost, so else to standard error."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info(line)
    else:
        print(line, file=sys.stderr, flush=True)
