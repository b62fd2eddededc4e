"""What a run stood on: captured into a folder, read back, compared.

    from fastseed import environment

    environment.capture("runs/42/environment")
    for difference in environment.diff("runs/41/environment", "runs/42/environment"):
        print(difference.level, difference.path, difference.before, difference.after)

The format, what is kept and what never is: ``docs/environment.md``.
"""

from __future__ import annotations

import math
import os
from typing import Any

from ..._utils.validation import describe
from . import storage
from .comparison import Difference, compare, summary
from .schema import FORMAT, VERSION, Capture

__all__ = ["FORMAT", "VERSION", "Capture", "Difference", "capture", "diff", "load", "summary"]


def capture(
    directory: str | os.PathLike[str] | None = None,
    *,
    all_env: bool = False,
    clocks: bool = False,
    patches: bool = True,
    overwrite: bool = False,
    timeout: float = 10.0,
    budget: float = 60.0,
) -> Capture:
    """Capture the environment of this process, and write it to ``directory``.

    Secrets are taken out before anything is written or returned. Draws nothing, changes no switch
    and initialises no GPU.

    Args:
        directory: a new or empty folder, no symbolic link; it gets mode 0700, its files 0600. None:
            only return the capture.
        all_env: keep all environment variables, redacted by name and value, rather than those on
            the allow-list.
        clocks: ask for the GPUs' clocks and temperatures as well; they differ from run to run.
        patches: keep the uncommitted diffs of the working folder and of editable packages; without
            it only which files they touch, and a hash of the scrubbed text.
        overwrite: replace a capture that is there (nothing but a capture).
        timeout: seconds for each external program, above 0.
        budget: seconds for all of them.

    Raises:
        TypeError: an argument of a wrong type.
        ValueError: a time below or equal to 0; a directory that is a link, a file, or not empty.
        OSError: the folder cannot be written.
    """
    function = "fastseed.tools.environment.capture"
    for name, value in (("timeout", timeout), ("budget", budget)):
        _check_seconds(function, name, value)
    for name, flag in (
        *(("all_env", all_env), ("clocks", clocks)),
        *(("patches", patches), ("overwrite", overwrite)),
    ):
        if not isinstance(flag, bool):
            raise TypeError(f"{function}: {name} must be a bool, got {describe(flag)}")
    path = None if directory is None else storage.check(function, directory)
    if path is not None:
        storage.check_free(function, path, overwrite)  # before the work, and again before the move
    from .collect import collect

    found = collect(all_env=all_env, clocks=clocks, patches=patches, timeout=timeout, budget=budget)
    if path is not None:
        storage.write(function, path, found, overwrite)
    return found


def load(directory: str | os.PathLike[str]) -> Capture:
    """The capture in ``directory``.

    Raises:
        TypeError: ``directory`` is no path.
        ValueError: no folder, no capture, one of another version, or a damaged one; says which file
            and what is wrong.
    """
    function = "fastseed.tools.environment.load"
    return storage.read(function, storage.check(function, directory))


def diff(
    a: Capture | str | os.PathLike[str], b: Capture | str | os.PathLike[str]
) -> list[Difference]:
    """What differs from ``a`` to ``b``, captures or their folders, what matters most first.

    Raises:
        TypeError, ValueError: as :func:`load`.
    """
    return compare(_capture(a), _capture(b))


def _capture(value: Any) -> Capture:
    if isinstance(value, Capture):
        return value
    function = "fastseed.tools.environment.diff"
    return storage.read(function, storage.check(function, value))


def _check_seconds(function: str, name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{function}: {name} must be a number of seconds, got {describe(value)}")
    if not 0 < value < math.inf:
        raise ValueError(f"{function}: {name} must be above 0 and finite, got {describe(value)}")
