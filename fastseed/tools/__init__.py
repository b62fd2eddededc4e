"""Tools of the command line: environment capture, states in checkpoints, verify."""

from __future__ import annotations

import os
from pathlib import Path

from .._utils import validation
from ..debug import watch_file
from . import logs
from .environment import FILE

RECORDING, ENVIRONMENT, LOG = "recording", "environment", "log"
CHECKPOINT = "checkpoint or job"


def parts_of(function: str, argument: str, given: str) -> dict[str, str]:
    """Return the kinds of things that a path holds, each with its path.

    The folder of a run may hold recordings and an environment.
    """
    path = Path(validation.check_path(function, argument, given))
    if not path.exists():
        raise FileNotFoundError(f"fastseed.{function}: {argument} must exist, got {given!r}")
    if path.suffix == ".watch":
        return {RECORDING: given}
    found = {}
    if watch_file.find_files(path):
        found[RECORDING] = given
    for folder in (path, path / ENVIRONMENT):
        if (folder / FILE).is_file():
            found[ENVIRONMENT] = os.fspath(folder)
    if not found and logs.is_log(path):
        return {LOG: given}
    return found or {CHECKPOINT: given}
