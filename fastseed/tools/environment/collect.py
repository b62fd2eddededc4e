"""Putting a capture together: every section, then secrets out of all of them, then the diffs."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import gpu, hpc, machine, shared_libraries, torch_state, variables
from . import packages as software
from .commands import Runner
from .git import Repositories
from .redact import Scrubber
from .schema import SECTIONS, Capture

_NAMED = ("packages", "system_packages", "conda", "compilers")  # keys are packages' names


def collect(
    *, all_env: bool, clocks: bool, patches: bool, timeout: float, budget: float
) -> Capture:
    """The capture of this process. Never fails for what a machine lacks; see ``problems``."""
    began = time.perf_counter()
    environ = dict(os.environ)
    runner = Runner(timeout, budget, environ)
    scrubber = Scrubber(environ)
    raw: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    problems: list[str] = []

    def section(name: str, ask: Callable[[], Any], empty: Any) -> None:
        start = time.perf_counter()
        try:
            raw[name] = ask()
        except Exception as error:  # one section's trouble is not the others'
            raw[name] = empty
            # Its text may hold anything, and so is not kept.
            problems.append(f"{name}: could not be read ({type(error).__name__})")
        seconds[name] = round(seconds.get(name, 0.0) + time.perf_counter() - start, 3)

    kept = variables.variables(environ, scrubber, all_env)
    asked: dict[str, Callable[[], Any]] = {
        "preload": lambda: shared_libraries.preload(environ),
        "torch": torch_state.torch_state,
        "gpu": lambda: gpu.gpu(runner, clocks),
        "packages": software.packages,
        "python": software.python,
        "variables": lambda: kept,
        "machine": machine.machine,
        "container": machine.container,
        "scheduler": lambda: hpc.scheduler(kept),
        "modules": lambda: hpc.modules(runner),
        "conda": lambda: hpc.conda(environ),
        "system_packages": lambda: hpc.system_packages(runner),
        "compilers": lambda: software.compilers(runner),
        "process": lambda: {"command": _command(scrubber)},
        "host": machine.host,
        "libraries": shared_libraries.libraries,  # late: what the others load is mapped as well
    }
    for name, ask in asked.items():
        section(name, ask, {})
    scrubber.study(raw)
    repositories = Repositories(runner, scrubber, patches)
    section("git", lambda: _git(repositories, raw["packages"]), {"git": {}, "editable": {}})
    raw |= raw.pop("git")
    for about in raw["packages"].values():
        if "url" in about:
            about["url"] = scrubber.strict(about["url"])
    sections = {name: scrubber.tree(raw[name], names=name in _NAMED) for name in SECTIONS}
    header = {
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "by": f"fastseed {_version()}",
        "seconds": round(time.perf_counter() - began, 3),
        "section_seconds": seconds,
        "options": {"all_env": all_env, "clocks": clocks, "patches": patches},
        "problems": [scrubber.text(p) for p in (*problems, *runner.problems.values())],
        "redactions": scrubber.removed,
    }
    return Capture(header, sections, repositories.patches)


def _command(scrubber: Scrubber) -> list[str]:
    return scrubber.arguments(getattr(sys, "orig_argv", sys.argv))


def _git(repositories: Repositories, packages: dict[str, Any]) -> dict[str, Any]:
    """The repositories of the working folder, of editable packages and of `PYTHONPATH`."""
    folders = {**software.path_folders(), **software.editable_folders(packages)}
    here = Path.cwd()
    repositories.study([here, *folders.values()])
    git = repositories.state(here, here.name) or {}
    found = {name: repositories.state(folder, name) for name, folder in folders.items()}
    # A package of the working folder's own repository: said once.
    same = {"root": git.get("root"), "repository": "git"}
    editable = {
        name: same if state is git or state == git else state
        for name, state in found.items()
        if state
    }
    return {"git": git, "editable": editable}


def _version() -> str:
    try:
        return importlib.metadata.version("fastseed")
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path
        return "of a source tree"
