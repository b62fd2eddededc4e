"""Start a program with the variables that must be set before Python starts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from .._utils import environ, validation
from . import hash_seed
from .variables import CHILD_VARIABLES, VARIABLES


def variables(
    base: Mapping[str, str], *, seed: int | None = None, deterministic: bool | str = False
) -> dict[str, str]:
    """Return the variables to set for a program, in addition to ``base``.

    ``PYTHONHASHSEED`` is the lowest 32 bits of the seed; without one what ``base`` fixes it to;
    else 0. ``deterministic`` may be ``"warn"``. Values of ``base`` that are good enough are kept.
    """
    if seed is None:
        hashing = hash_seed.parse(base.get(hash_seed.VARIABLE)) or 0
        new = {hash_seed.VARIABLE: str(hashing)}
    else:
        seed = validation.check_int("run", "seed", seed, 0, 2**64 - 1)
        new = {hash_seed.VARIABLE: str(seed & hash_seed.MAX_SEED), environ.MASTER_SEED: str(seed)}
    if deterministic:
        new[environ.DETERMINISTIC] = "warn" if deterministic == "warn" else "1"
        new |= CHILD_VARIABLES
        new |= {v.name: v.wanted for v in VARIABLES if not v.accepts(base.get(v.name, ""))}
    return {name: value for name, value in new.items() if base.get(name) != value}


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by ``command``; an OSError has the name of the program."""
    arguments = [os.fspath(one) for one in command]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ignored = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python, and the program would inherit that
    handlers = [signal.signal(number, signal.SIG_DFL) for number in ignored]
    try:
        os.execvpe(arguments[0], arguments, dict(environment))
    except OSError as error:
        for number, handler in zip(ignored, handlers, strict=True):
            signal.signal(number, handler)
        raise type(error)(error.errno, error.strerror, arguments[0]) from None
