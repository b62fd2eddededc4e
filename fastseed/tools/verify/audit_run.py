"""One more run, with its random numbers watched: `fastseed doctor` on the script."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Sequence

from .diagnosis import script_of
from .result import Finding
from .run_directory import RunDirectory
from .subprocesses import Processes

NAME = "probe-0"
_DOCTOR = ("-m", "fastseed", "doctor", "--json")


def probe(directory: RunDirectory, timeout: float | None) -> tuple[list[Finding], str]:
    """Draws from generators that nobody registered, in a half run; and why there are none to tell.

    Only for `python script.py …`: another program cannot be watched from here.
    """
    folder = directory.begin(NAME)
    command = directory.plan.arguments("half", folder)
    at = script_of(command)
    if at is None or "python" not in os.path.basename(command[0]):
        return [], "draws were not watched: the command is not of the form python script.py"
    environment = directory.plan.environment("half", folder, dict(os.environ))
    arguments = [*command[:at], *_DOCTOR, *command[at:]]
    try:
        code = Processes().run(arguments, environment, folder, timeout)
    except OSError as error:
        return [], f"draws were not watched: {error}"
    if code is None:
        return [], f"draws were not watched: that takes more than {timeout:g} s"
    try:
        found = json.loads((folder / "stdout.txt").read_bytes())
        seen = [(one["kind"], one["what"], one["where"]) for one in found["findings"]]
        adopted = ("init", "wrong") not in [(one["item"], one["status"]) for one in found["rows"]]
        if not all(isinstance(text, str) for one in seen for text in one):
            raise TypeError
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        python = command[0] if command[0] != sys.executable else "it"
        return [], f"draws were not watched: fastseed doctor did not end well in {python}"
    return list(_findings(seen, adopted)), ""


def _findings(seen: Sequence[tuple[str, str, str]], adopted: bool) -> list[Finding]:
    """What an audit saw, but for what libraries keep to themselves.

    Args:
        seen: kind, what, where.
        adopted: whether the script calls `fastseed.init`; one that does not seeds by hand.
    """
    found = []
    for kind, what, where in dict.fromkeys(seen):
        if kind == "early":
            says = f"draws from {what}: {where}"
            mend = "fastseed.init() and reseed(task, epoch), before the first draw, seed them all"
            found.append(Finding("generator", True, says, "", mend))
        elif kind == "seeded" and not adopted:
            continue
        elif kind in _SAYS and not _is_foreign(where):
            group, text, mend = _SAYS[kind]
            found.append(Finding(group, True, text.format(what=what), where, mend))
    return found


_SAYS = {
    "unseeded": (
        "generator", "draws from {what}, which was made without a seed",
        "fastseed.register_generator(it), or seed it from fastseed.derive_seed(name, task=0)",
    ),
    "unregistered": (
        "audit", "draws from {what}, which nobody registered: a resumed run may draw otherwise",
        "fastseed.register_generator(it), or seed it from fastseed.derive_seed(name, task=0)",
    ),
    "seeded": (
        "audit", "calls {what}, so that fastseed's seed is gone",
        "remove it; reseed(task, epoch) seeds all libraries",
    ),
    "repeated": (
        "audit", "uses {what} again: they draw the same numbers",
        "give each its own task, epoch and step",
    ),
}  # fmt: skip


def _is_foreign(where: str) -> bool:
    """Whether a generator is one of the standard library's, or of an installed package."""
    file = where.rpartition(":")[0]
    if file:
        installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
        return any(os.path.realpath(file).startswith(os.path.realpath(one)) for one in installed)
    top = where.partition(".")[0]
    if not top.isidentifier() or top.startswith("_"):  # "a dict, under …": nobody's in particular
        return True
    if top in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    return spec is not None and "site-packages" in (spec.origin or "")
