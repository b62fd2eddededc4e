"""Collecting all sections of a capture."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..._utils import StateDict
from ..._utils.version import __version__
from . import packages, system
from .commands import Runner
from .git import Repositories
from .variables import variables


class Capture(NamedTuple):
    """The environment of a run.

    Attributes:
        header: when and how it was captured: ``at``, ``by``, ``seconds``, ``problems``.
        sections: section name -> dict; see ``docs/environment.md``.
        patches: repository -> its uncommitted changes as text; empty unless they were requested.
    """

    header: StateDict
    sections: dict[str, StateDict]
    patches: dict[str, str]


def collect(*, patches: bool) -> Capture:
    """Return the capture of this process. What a machine lacks is no error; see ``problems``."""
    began = time.perf_counter()
    environment = dict(os.environ)
    runner = Runner(environment)
    repositories = Repositories(runner)
    collectors: dict[str, Callable[[], StateDict]] = {
        "torch": system.torch_state,
        "hardware": lambda: system.hardware(runner),
        "python": system.python,
        "packages": packages.packages,
        "conda": lambda: packages.conda(environment),
        "apt": lambda: packages.apt(runner),
        "modules": lambda: packages.modules(environment),
        "variables": lambda: variables(environment),
        "git": lambda: repositories.state(Path.cwd(), "git"),
        "editable": lambda: {
            name: state
            for name, folder in packages.source_folders().items()
            if (state := repositories.state(folder, name))
        },
    }
    found: dict[str, StateDict] = {}
    problems = []
    for name, collector in collectors.items():
        try:
            found[name] = collector()
        except Exception as error:  # the other sections do not depend on it
            found[name] = {}
            # Not its text, which may hold anything.
            problems.append(f"{name}: could not be read ({type(error).__name__})")
    header = {
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "by": f"fastseed {__version__}",
        "seconds": round(time.perf_counter() - began, 3),
        "problems": [*problems, *runner.problems.values()],
    }
    return Capture(header, found, repositories.texts if patches else {})
