"""What ``init`` does: agree on the master seed, seed everything, take over the process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

from torch.utils.data import get_worker_info

from .._backend import derive, native
from .._utils import environ, validation
from .._utils.log import logger
from ..derivation import context, scopes
from ..distributed import agreement, discovery
from .errors import ReseedError
from .job import Job, read_job
from .seeder import SEED_BITS, Seeder


def start(
    master_seed: int | None,
    *place: Any,
    shows: bool = True,
    warn_only: bool | None = None,
    again: Sequence[str] = (),
) -> Seeder:
    """Do ``init``: ``place`` is its arguments from ``ngpus`` on; ``shows`` a seed that it drew.

    ``warn_only`` asks for ``deterministic``; the names ``again`` are registered by the caller.
    """
    requested = None
    if environ.get(environ.DETERMINISTIC) is not None:
        from ..determinism import switches

        requested = switches.requested("init")
    seeder = Seeder.__new__(Seeder)
    seeder._start(*join_job(master_seed, place))
    failed = None
    if get_worker_info() is not None:
        logger.warning(
            "fastseed.init: called in a DataLoader worker, whose generators the loader has "
            "seeded: they are left as they are"
        )
    else:
        try:
            seeder.move(0, 0, 0, "init")
        except ReseedError as error:  # another reseed repairs it
            failed = error
    replace_seeder(seeder, again)
    if seeder.rank == 0:
        report(seeder.job, seeder.master_seed, is_given=master_seed is not None, shows=shows)
    warn_only = requested if warn_only is None else warn_only
    if warn_only is not None:
        from ..determinism import switches

        switches.deterministic(warn_only=warn_only)
    if failed is not None:
        raise failed
    return seeder


def join_job(
    master_seed: int | None, place: tuple[Any, ...], bits: int = SEED_BITS, *, correct: bool = True
) -> tuple[Job, int, bool]:
    """Return the job, its master seed, and whether every rank is known to have it.

    All ranks of the process group agree on it; ``bits`` are those of one that is drawn, and
    ``correct`` is that of ``discovery.locate``.
    """
    ngpus, _, _, world_size = (*place, *[None] * 4)[:4]
    size = ngpus if world_size is None else world_size
    if not isinstance(size, int):
        size = discovery.process_group_size()
    job: Job | None = None
    problem: Exception | None = None
    try:
        job = read_job("init", *place, correct=correct)
        size = job.world_size
        if master_seed is not None:
            master_seed = scopes.check_master_seed("init", "master_seed", master_seed)
        elif text := environ.get(environ.MASTER_SEED):  # what `fastseed run` requests
            master_seed = scopes.read_master_seed("init", environ.MASTER_SEED, text)
    except (TypeError, ValueError) as error:
        problem = error  # raised after the collective, so that no rank hangs
    master_seed, is_agreed = agreement.agree_on_master(master_seed, size, bits, problem)
    assert job is not None
    return job, master_seed, is_agreed


def replace_seeder(new: Seeder | None, again: Sequence[str] = ()) -> None:
    """Make ``new`` the seeder of the process; warn about registrations of an earlier ``init``."""
    old = () if context.seeder is None else context.seeder.generators.registry
    context.set_current(new)
    dropped = [entry.name for entry in old if entry.name not in again]
    if dropped:
        logger.warning(
            "fastseed.init: called again, which drops the registered generators %s; register "
            "those that are still needed after it",
            dropped,
        )


def report(job: Job, master_seed: int, *, is_given: bool, shows: bool) -> None:
    """Log what is used; warn if ``fastseed run`` requested another master seed.

    ``shows`` is whether to print one that was drawn where the log does not take it.
    """
    text = environ.get(environ.MASTER_SEED)
    if text and text != str(master_seed):
        logger.warning(
            "fastseed.init: master seed %d was given and is used, but %s=%s (fastseed run --seed) "
            "requests another one; call init() without a seed to use that",
            *(master_seed, environ.MASTER_SEED, text),
        )
    source = f" of {environ.MASTER_SEED}" if text and not is_given else ""
    mesh = f"mesh ({job.mesh}), " if job.mesh else ""
    logger.info(
        "fastseed: master seed %d%s, rank %d of %d, %sbackend %s (%s)",
        *(master_seed, source, job.rank, job.world_size, mesh),
        *(derive.backend, derive.simd() or native.missing),
    )
    if shows and not (text or is_given):
        say(f"fastseed.init: the master seed is {master_seed}; pass it to repeat this run")


def say(line: str) -> None:
    """Log a line at level INFO, or print it on standard error if the log does not take it."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info(line)
    else:
        print(line, file=sys.stderr, flush=True)


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
    tensorflow, cupy = sys.modules.get("tensorflow"), sys.modules.get("cupy")
    others: dict[str, Any] = {}
    if tensorflow is not None:
        others["tensorflow"] = tensorflow.random.set_seed
    if cupy is not None:
        others["cupy"] = cupy.random.seed
    mode = None if seed is None else warn_only
    seeder = start(seed, shows=False, warn_only=mode, again=tuple(others))
    for name, function_of_seed in others.items():
        seeder.register_generator(function_of_seed, name=name)
    seeder.reseed(0)
    if seeder.rank == 0:
        say(f"Using seed: {seeder.master_seed}")
    return seeder.master_seed
