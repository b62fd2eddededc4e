"""One line that makes a script reproducible, and the configuration file put into effect."""

from __future__ import annotations

import logging
import os
import random
import sys

import numpy as np
import torch

from .._utils import validation
from ..derivation import context, streams
from ..determinism import config, hash_seed
from ..determinism.config import Config
from ..determinism.report import ABSENT, ALREADY, LATE, SEEN, SET, Report, Row
from ..determinism.switches import deterministic
from ..generators import frameworks
from . import api
from .seeder import Seeder

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
    seeder: Seeder = context.current("enforce_reproducibility")
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


def apply_config(source: Config | str | os.PathLike[str] | None = None) -> Report:
    """Put a configuration into effect, in the order in which :class:`fastseed.determinism.config.Config` lists.

    Args:
        source: a configuration, a file that ``fastseed.determinism.config.load`` reads, or None: the file that
            ``fastseed run --config`` named.

    Returns:
        A row for each key that is there. ``python_seed`` is compared with what Python hashes with;
        ``tf_seed`` is ``not there`` where TensorFlow is not imported.

    Raises:
        TypeError, ValueError, OSError, ImportError: as ``fastseed.determinism.config.load``.
        RuntimeError: None, and not started by ``fastseed run --config``; or as ``deterministic``.
    """
    if source is None:
        found = config.from_environment("fastseed.apply_config")
    elif isinstance(source, Config):
        found = source
    elif isinstance(source, (str, os.PathLike)):
        found = config.load(source)
    else:
        raise TypeError(
            "fastseed.apply_config: source must be a Config or a path, "
            f"got {validation.describe(source)} of type {type(source).__name__}"
        )
    tensorflow = None if found.tf_seed is None else frameworks.seed_function("tensorflow")
    rows: list[Row] = []
    if found.python_seed is not None:
        rows.append(_python_seed(found.python_seed))
    if found.deterministic is not None and found.deterministic is not False:
        rows += deterministic(warn_only=found.deterministic == "warn").rows
    if found.master_seed is not None:
        api.init(found.master_seed)
        rows.append(_row("master_seed", found.master_seed, "fastseed.init; call reseed next"))
    seeders = (
        ("random_seed", found.random_seed, random.seed, "random.seed"),
        ("numpy_seed", found.numpy_seed, np.random.seed, "numpy.random.seed"),
        ("torch_seed", found.torch_seed, torch.manual_seed, "torch.manual_seed"),
        ("tf_seed", found.tf_seed, tensorflow, "tensorflow.random.set_seed"),
    )
    for name, value, function, why in seeders:
        if value is None:
            continue
        if function is None:
            rows.append(Row(name, value, None, None, ABSENT, "TensorFlow is not imported"))
            continue
        function(value)
        rows.append(_row(name, value, why))
    if found.workers is not None:
        why = "DataLoader workers, for the script to make"
        rows.append(Row("workers", found.workers, None, found.workers, SEEN, why))
    return Report(rows)


def _row(name: str, value: int, why: str) -> Row:
    return Row(name, value, None, value, SET, why)


def _python_seed(wanted: int) -> Row:
    value, seed = hash_seed.found()
    if seed == wanted:
        return Row("python_seed", wanted, value, seed, ALREADY, "PYTHONHASHSEED")
    why = "Python reads PYTHONHASHSEED before a script's first line; start with `fastseed run`"
    logger.warning("fastseed.apply_config: python_seed is too late: %s", why)
    now = "random" if seed is None else seed
    return Row("python_seed", wanted, value, now, LATE, why)
