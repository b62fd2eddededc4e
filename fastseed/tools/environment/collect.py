"""Collecting all sections of a capture."""

from __future__ import annotations

import datetime
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..._utils.version import __version__
from . import keyed_hash, machine, packages, shared_libraries, torch_state
from .commands import Runner
from .git import Repositories
from .variables import variables


class Capture(NamedTuple):
    """The environment of a run.

    Attributes:
        header: when and how it was captured: ``at``, ``seconds``, ``problems``, ``key`` (the id of
            the key of its hashes), ….
        sections: section name -> dict; see ``docs/environment.md``.
        patches: repository -> its uncommitted changes as text; empty unless they were requested.
    """

    header: dict[str, Any]
    sections: dict[str, dict[str, Any]]
    patches: dict[str, str]


def collect(*, patches: bool) -> Capture:
    """Return the capture of this process. What a machine lacks is no error; see ``problems``."""
    began = time.perf_counter()
    environment = dict(os.environ)
    hasher, problem = keyed_hash.load()
    runner = Runner(environment)
    repositories = Repositories(runner, hasher, patches)
    collectors: dict[str, Callable[[], Any]] = {
        "preload": lambda: shared_libraries.preload(environment, hasher),
        "torch": torch_state.torch_state,
        "gpu": lambda: machine.gpu(runner, hasher),
        "packages": lambda: packages.packages(hasher),
        "git": lambda: repositories.state(Path.cwd(), "git"),
        "editable": lambda: {
            name: state
            for name, folder in packages.source_folders().items()
            if (state := repositories.state(folder, name))
        },
        "python": lambda: packages.python(hasher),
        "variables": lambda: variables(environment, hasher),
        "machine": machine.machine,
        "modules": lambda: packages.modules(environment, hasher),
        "conda": lambda: packages.conda(environment),
        "compilers": lambda: packages.compilers(runner),
        "process": lambda: {
            "command": [hasher("argument", argument) for argument in sys.orig_argv]
        },
        "host": lambda: {
            "name": hasher("host", socket.gethostname()), "working_folder": hasher.path(os.getcwd())
        },
        # Last, since the others may load libraries.
        "libraries": lambda: shared_libraries.libraries(hasher),
    }  # fmt: skip
    found: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    problems = [problem] if problem else []
    for name, collector in collectors.items():
        start = time.perf_counter()
        try:
            found[name] = collector()
        except Exception as error:  # the other sections do not depend on it
            found[name] = {}
            # Not its text, which may hold anything.
            problems.append(f"{name}: could not be read ({type(error).__name__})")
        seconds[name] = round(time.perf_counter() - start, 3)
    header = {
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "by": f"fastseed {__version__}",
        "key": hasher.key_id,
        "seconds": round(time.perf_counter() - began, 3),
        "section_seconds": seconds,
        "problems": [*problems, *runner.problems.values()],
    }
    return Capture(header, found, repositories.patches)
