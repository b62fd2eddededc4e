"""Collecting all sections of a capture."""

from __future__ import annotations

import datetime
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..._utils.version import __version__
from . import gpu, keyed_hash, machine, packages, shared_libraries, torch_state
from .commands import Runner
from .git import Repositories
from .keyed_hash import Hasher
from .storage import SECTIONS, Capture
from .variables import variables


def collect(*, clocks: bool, patches: bool, key: Path | None, timeout: float) -> Capture:
    """Return the capture of this process. What a machine lacks is no error; see ``problems``."""
    began = time.perf_counter()
    environment = dict(os.environ)
    hasher, problem = keyed_hash.load(key)
    runner = Runner(timeout, environment)
    repositories = Repositories(runner, hasher, patches)
    collectors: dict[str, Callable[[], Any]] = {
        "preload": lambda: shared_libraries.preload(environment, hasher),
        "torch": torch_state.torch_state,
        "gpu": lambda: gpu.gpu(runner, hasher, clocks),
        "packages": lambda: packages.packages(hasher),
        "git": lambda: repositories.state(Path.cwd(), "git"),
        "editable": lambda: _editable(repositories),
        "python": lambda: packages.python(hasher),
        "variables": lambda: variables(environment, hasher),
        "machine": machine.machine,
        "container": machine.container,
        "modules": lambda: packages.modules(environment, hasher),
        "conda": lambda: packages.conda(environment),
        "system_packages": lambda: packages.system_packages(runner),
        "compilers": lambda: packages.compilers(runner),
        "process": lambda: {"command": _command(hasher)},
        "host": lambda: _host(hasher),
        # Last, since the others may load libraries.
        "libraries": lambda: shared_libraries.libraries(hasher),
    }
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
        "options": {"clocks": clocks, "patches": patches},
        "problems": [*problems, *runner.problems.values()],
    }
    return Capture(header, {name: found[name] for name in SECTIONS}, repositories.patches)


def _command(hasher: Hasher) -> list[str]:
    return [hasher("argument", argument) for argument in getattr(sys, "orig_argv", sys.argv)]


def _host(hasher: Hasher) -> dict[str, str]:
    name = hasher("host", socket.gethostname())
    return {"name": name, "working_folder": hasher.path(os.getcwd())}


def _editable(repositories: Repositories) -> dict[str, Any]:
    """Return the repositories of editable packages and of folders on `PYTHONPATH`."""
    here = repositories.state(Path.cwd(), "git")
    found = {}
    for name, folder in packages.source_folders().items():
        state = repositories.state(folder, name)
        if state:
            found[name] = {"repository": "git"} if state is here else state
    return found
