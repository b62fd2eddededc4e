"""Run the command once more under `fastseed doctor`, to detect unseeded random numbers."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Sequence

from .diagnosis import find_script
from .result import Finding
from .run_directory import RunDirectory
from .subprocesses import Processes

NAME = "audit-0"
_DOCTOR = ("-m", "fastseed", "doctor", "--json")
_REGISTER = "call fastseed.register_generator on it, or seed it with fastseed.derive_seed"
_FINDINGS = {
    "unseeded": ("generator", "{what} was created without a seed and is used", _REGISTER),
    "unregistered": (
        "audit", "{what} is used but not registered: a resumed run may continue it differently",
        _REGISTER,
    ),
    "seeded": (
        "audit", "{what} is called, which overrides fastseed's seed",
        "remove it; fastseed.reseed(task, epoch) seeds all libraries",
    ),
    "repeated": (
        "audit", "{what} is used again, which repeats its random numbers",
        "use a different task, epoch and step for each",
    ),
}  # fmt: skip
"""Kind of a finding of `fastseed doctor` -> kind, message and fix."""


def audit(directory: RunDirectory) -> tuple[list[Finding], str]:
    """Run a truncated run under `fastseed doctor`.

    Returns:
        What it found, and why the run could not be audited (``""`` if it was): only commands of
        the form ``python script.py ...`` can.
    """
    options = directory.options
    folder = directory.start(NAME)
    command = options.fill("truncated", folder)
    at = find_script(command)
    if at is None or "python" not in os.path.basename(command[0]):
        return [], "no run was audited: the command is not of the form python script.py"
    variables = options.variables("truncated", folder)
    arguments = [*command[:at], *_DOCTOR, *command[at:]]
    try:
        code = Processes().run(arguments, variables, folder, options.timeout)
        if code is None:
            return [], f"no run was audited: it did not end within {options.timeout} seconds"
        document = json.loads((folder / "stdout.txt").read_bytes())
        seen = [(str(one["kind"]), one["what"], one["where"]) for one in document["findings"]]
        wrong = {one["item"] for one in document["rows"] if one["status"] == "wrong"}
        return _findings(seen, wrong), ""
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        return [], f"no run was audited: fastseed doctor failed in {command[0]}"


def _findings(seen: Sequence[tuple[str, str, str]], wrong: set[str]) -> list[Finding]:
    """Return the findings of an audit, except those inside libraries.

    Args:
        seen: kind, what, where.
        wrong: what is not set up: ``init`` for a script that seeds by hand, ``scope``.
    """
    found = []
    for kind, what, where in dict.fromkeys(seen):
        manual = kind == "seeded" and "init" in wrong
        if kind in _FINDINGS and not manual and not _in_library(where):
            group, text, fix = _FINDINGS[kind]
            found.append(Finding(group, True, text.format(what=what), where, fix))
    for item, function in (("init", "fastseed.init"), ("scope", "fastseed.reseed")):
        if item in wrong:
            message = f"{function} is not called: a global generator that is not seeded may be used"
            fix = "call fastseed.init() and fastseed.reseed(task, epoch) before any random number"
            return [*found, Finding("generator", False, message, "", fix)]
    return found


def _in_library(where: str) -> bool:
    """Return True for a generator of the standard library or an installed package."""
    file = where.rpartition(":")[0]
    if file:
        installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
        return any(os.path.realpath(file).startswith(os.path.realpath(one)) for one in installed)
    top = where.partition(".")[0]
    if not top.isidentifier() or top.startswith("_") or top in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    return spec is not None and "site-packages" in (spec.origin or "")
