"""Starting a program with everything in place that has to be there before Python starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._utils import validation
from ..derivation import streams
from . import config, hash_seed, switches
from .config import Config
from .settings import CHILD_VARIABLES, VARIABLES

MASTER_SEED = "FASTSEED_MASTER_SEED"
RUN_DIR = "FASTSEED_RUN_DIR"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def variables(
    base: Mapping[str, str],
    *,
    seed: int | None = None,
    deterministic: bool | str = False,
    file: str | os.PathLike[str] | None = None,
) -> dict[str, str]:
    """The variables that a program is to be started with, on top of ``base``.

    ``PYTHONHASHSEED`` always: the file's ``python_seed``; else the seed's lowest 32 bits; else what
    ``base`` fixes it to; else 0. What ``base`` has of the others is kept where it is as good.

    Args:
        base: the environment.
        seed: the master seed, [0, 2**64). Goes before the file's.
        deterministic: True or ``"warn"``: whatever the file says.
        file: a configuration (:mod:`fastseed.determinism.config`).

    Raises:
        TypeError, ValueError, OSError, ImportError: as ``fastseed.determinism.config.load``; a wrong seed.
    """
    if seed is not None:
        seed = validation.check_int("run", "seed", seed, 0, streams.MAX_MASTER)
    found = Config() if file is None else config.load(file)
    seed = found.master_seed if seed is None else seed
    deterministic = deterministic or found.deterministic or False
    new = {hash_seed.VARIABLE: str(_hash_seed(base, seed, found.python_seed))}
    if seed is not None:
        new[MASTER_SEED] = str(seed)
    if file is not None:
        new[config.VARIABLE] = os.path.abspath(file)
    if deterministic:
        new[switches.VARIABLE] = "warn" if deterministic == "warn" else "1"
        new.update(CHILD_VARIABLES)
        for one in VARIABLES:
            if not one.accepts(base.get(one.name, "")):
                new[one.name] = one.wanted
    return {name: value for name, value in new.items() if base.get(name) != value}


def _hash_seed(base: Mapping[str, str], seed: int | None, python_seed: int | None) -> int:
    if python_seed is not None:
        return python_seed
    if seed is not None:
        return seed & hash_seed.MAX_SEED
    return hash_seed.parse(base.get(hash_seed.VARIABLE)) or 0


def check_name(name: str | None) -> None:
    """ValueError for a run's name that is no plain file name."""
    if name is not None and not _NAME.fullmatch(name):
        raise ValueError(
            "fastseed.run: name must be 1 to 128 letters, digits, '.', '_' and '-', none of '.' "
            f"and '-' first, got {validation.describe(name)}"
        )


def run_folder(directory: str | os.PathLike[str], name: str | None) -> Path:
    """Where a run's files go: ``directory/name``, or ``directory``. Makes ``directory`` for a name.

    Raises:
        ValueError: ``name`` is not one file name of letters, digits, ``.``, ``_`` and ``-``; or it
            is there and leads elsewhere.
        OSError: ``directory`` cannot be made.
    """
    folder = Path(directory)
    check_name(name)
    if name is None:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if path.is_symlink() or path.resolve().parent != folder.resolve():
        raise ValueError(
            f"fastseed.run: name must stay in {validation.describe(str(folder))}, "
            f"got {validation.describe(name)}, which leads to {validation.describe(str(path.resolve()))}"
        )
    return path


def become(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Replace this process by ``command``, which is never shown to a shell.

    So signals, job control and the exit code are the program's own, and no second process stays in
    memory. Returns where the system cannot do that (Windows): the program's exit code, when it has
    ended.

    Raises:
        OSError: it cannot be started; ``filename`` is the program.
    """
    arguments = [os.fspath(one) for one in command]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if os.name != "posix":
        return subprocess.call(arguments, env=dict(environment))
    # Python ignores these, and a program that is executed would go on doing so.
    names = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")
    ignored = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before: dict[Any, Any] = {one: signal.signal(one, signal.SIG_DFL) for one in ignored}
    try:
        os.execvpe(arguments[0], arguments, dict(environment))
    except OSError as error:
        raise type(error)(error.errno, error.strerror, arguments[0]) from None
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
