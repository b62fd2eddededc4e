"""``enforce_reproducibility``: one line that makes a script reproducible."""

from __future__ import annotations

import sys

from .._utils import validation
from ..derivation import scopes
from ..determinism.switches import deterministic
from .start import say, start


def enforce_reproducibility(seed: int | None = None, *, warn_only: bool = False) -> int:
    """Seed everything, and with a given seed also be deterministic.

    Calls ``fastseed.init(seed)``, registers the generators of TensorFlow and CuPy if they are
    imported, and calls ``fastseed.reseed(0)``. The line ``Using seed: N`` in the log, or on
    standard error, has the seed that repeats the run.

    Args:
        seed: [0, 2**64). With a seed ``fastseed.deterministic`` is called too. None: as ``init``.
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
        >>> random.random() == number
        True
    """
    function = "enforce_reproducibility"
    validation.check_bool(function, "warn_only", warn_only)
    if seed is not None:
        seed = scopes.check_master_seed(function, "seed", seed)
    seeder = start(seed, shows=False)
    if seed is not None:
        deterministic(warn_only=warn_only)
    tensorflow, cupy = sys.modules.get("tensorflow"), sys.modules.get("cupy")
    if tensorflow is not None:
        seeder.register_generator(tensorflow.random.set_seed, name="tensorflow")
    if cupy is not None:
        seeder.register_generator(cupy.random.seed, name="cupy")
    seeder.reseed(0)
    if seeder.rank == 0:
        say(f"Using seed: {seeder.master_seed}")
    return seeder.master_seed
