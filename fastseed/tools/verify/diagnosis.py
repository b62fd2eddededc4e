"""Why runs are not the same: what was recorded of them, and what the script's text makes likely.

Observed are the tensor in which two runs part first (:class:`fastseed.debug.Watch`), generators that are
in another state there, draws from generators that nobody registered (one more run under
:func:`fastseed.debug.audit`), and what changed around the runs. What is left when none of these
explains it is arithmetic.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import recordings
from .recordings import Parted
from .result import Check, Finding, Run

_NAMES = 4  # in a list
_ORDER = (
    "generator", "worker", "resume", "arithmetic", "tensor", "environment", "control", "log",
    "audit", "lint",
)  # fmt: skip
_KINDS = {
    "FS101": "generator",
    "FS102": "generator",
    "FS103": "generator",
    "FS104": "generator",
    "FS203": "worker",
    "FS301": "resume",
    "FS302": "resume",
    "FS501": "arithmetic",
}
"""What a rule of the linter explains; of the others the kind is ``lint``."""


def explain(
    checks: Sequence[Check],
    runs: Sequence[Run],
    directory: Path,
    suspects: Sequence[Finding],
    watched: bool,
) -> list[Finding]:
    """What explains the checks that failed, and the suspects; what matters most first.

    Args:
        checks, runs, directory: what was judged, and where its runs are.
        suspects: what else is known of the script.
        watched: whether a run's draws were watched.
    """
    named = {check.name: check for check in checks}
    found: list[Finding] = []
    if not named["repeat"].identical:
        parted = recordings.first_parting(named["repeat"], runs, directory)
        found += _unrepeated(parted, suspects, watched)
    elif not named["prefix"].identical:
        found += _unlike(recordings.first_parting(named["prefix"], runs, directory))
    elif not named["resume"].identical:
        found += _unresumed(recordings.first_parting(named["resume"], runs, directory))
    elif not named["tensors"].identical:
        parted = recordings.first_parting(named["tensors"], runs, directory)
        resumed = parted is not None and parted.b.startswith("resumed")
        found += _unresumed(parted) if resumed else _unrepeated(parted, suspects, watched)
    if named["control"].passed is False:
        found.append(
            Finding(
                "control", True, f"runs without a seed do not all differ: "
                f"{named['control'].says}", "",
                "put the seed into the command as [ --seed {seed} ], or ask for no control",
            )
        )  # fmt: skip
    found += suspects
    return sorted(found, key=_weight)


def _weight(one: Finding) -> tuple[bool, bool, int]:
    """What explains first, what was observed first."""
    return one.kind in ("audit", "lint"), not one.certain, _ORDER.index(one.kind)


# ---------------------------------------------------------------- by check


def _unrepeated(
    parted: Parted | None, suspects: Sequence[Finding], watched: bool
) -> Iterator[Finding]:
    """Runs of one seed differ."""
    where = ""
    if parted is not None and parted.found.first is not None:
        yield _tensor(parted)
        first, step = parted.found.first, parted.found.step
        where = f"{first.group} {first.name}, step {step}"
        states = _generators(parted)
        if states:
            yield Finding(
                "generator", True,
                f"{_and(states)} in another state at step {step}: not seeded, or "
                "drawn from another number of times",
                f"{parted.a}, {parted.b}", "seed it: fastseed.init() and reseed(task, epoch)",
            )  # fmt: skip
            return
        if parted.found.start:
            yield Finding(
                "generator", True,
                "the runs begin with other weights: what initialises them is not seeded",
                f"{first.group} {first.name}", "reseed(task, epoch) before the model is made",
            )  # fmt: skip
            return
    if any(one.kind in ("generator", "worker") for one in suspects):
        return  # they say it better
    equal = parted is not None and parted.generators
    if not equal and not watched:
        if not where:
            yield Finding(
                "tensor", False, "neither draws were watched nor tensors recorded: what differs is "
                "not known", "", "record the runs with fastseed.Watch",
            )  # fmt: skip
        return
    seen = "no draw from a generator that is not seeded was seen"
    adds = "an operation whose result depends on the order in which threads or atomics add"
    yield Finding(
        "arithmetic", equal,
        "all generators were in the same states when the runs parted"
        + (f", and {seen}" if watched else "") + f": it is {adds}"
        if equal else f"{seen}: what is left are draws in other processes, as in DataLoader "
        f"workers, and {adds}",
        where,
        "fastseed run --deterministic, or fastseed.deterministic(): torch then refuses operations "
        "that it knows as such; "
        + ("look at what makes this tensor" if where else "record the runs with fastseed.Watch"),
    )  # fmt: skip


def _unlike(parted: Parted | None) -> Iterator[Finding]:
    """Whole runs repeat, but half runs are others."""
    if parted is not None and parted.found.first is not None:
        yield _tensor(parted)
    yield Finding(
        "resume", True,
        "a run that is to stop half-way is another one from its beginning: something depends on "
        "the number of epochs, as a schedule of the learning rate does",
        "", "give the whole number by {total} and the stop by [ … {stop} ]",
    )  # fmt: skip


def _unresumed(parted: Parted | None) -> Iterator[Finding]:
    """Whole and half runs repeat; what goes on from a checkpoint differs."""
    if parted is None or parted.found.first is None:
        yield Finding(
            "resume", True,
            "resumed runs go on differently: something is not in the checkpoint, or a generator "
            "was drawn from before they went on",
            "", "record the runs with fastseed.Watch to see which",
        )  # fmt: skip
        return
    yield _tensor(parted)
    found, states = parted.found, _generators(parted)
    where = f"{parted.b}, step {found.step}"
    if found.start:
        names = [f"{one.group} {one.name}" for one in found.differences[:_NAMES]]
        yield Finding(
            "resume", True, f"the checkpoint does not bring back {', '.join(names)}", where,
            "save and load it: model.state_dict(), optimizer.state_dict()",
        )  # fmt: skip
    elif states:
        yield Finding(
            "resume", True,
            f"{_and(states)} in another state in the resumed run: drawn from before it went on, or "
            "not put back",
            where, "call reseed(task, epoch, step) last before going on, or restore exact states",
        )  # fmt: skip
    elif parted.found.first.group == "optimizer":
        names = [one.name for one in found.differences if one.group == "optimizer"][:_NAMES]
        yield Finding(
            "resume", True,
            f"the optimizer's {', '.join(names)} is another in the resumed run: its schedule was "
            "not brought back",
            where, "save and load it: scheduler.state_dict(), optimizer.state_dict()",
        )  # fmt: skip
    else:
        equal = "generators, " if parted.generators else ""
        yield Finding(
            "resume", True,
            f"with the same {equal}weights and optimizer the first step after resuming differs: it "
            "saw other data, by their order, their augmentation or generators in workers",
            where, "fastseed.data.ResumableLoader and per_sample resume them",
        )  # fmt: skip


def _tensor(parted: Parted) -> Finding:
    first, found = parted.found.first, parted.found
    assert first is not None
    more = len(found.differences) - 1
    before = " (before the first one recorded)" if found.start else ""
    return Finding(
        "tensor", True,
        f"{parted.a} and {parted.b} part first in {first.group} {first.name}, step "
        f"{found.step}{before}, rank {found.rank}" + (f"; and {more} more there" if more else ""),
        f"{parted.a}, {parted.b}",
    )  # fmt: skip


def _generators(parted: Parted) -> list[str]:
    return [one.name for one in parted.found.differences if one.group == "generator"]


def _and(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES]) + (" and others" if len(names) > _NAMES else "")
    return f"generator {shown} is" if len(names) == 1 else f"generators {shown} are"


# ---------------------------------------------------------------- around the runs


def read_environment(rows: Sequence[tuple[Any, ...]]) -> list[Finding]:
    """What matters most of the differences between the first and the last session.

    ``rows`` are those of :func:`fastseed.tools.environment.diff`.
    """
    serious = [row for row in rows if row[0] in ("critical", "high")]
    return [
        Finding(
            "environment", True,
            f"{path} was {_short(before)} at first and {_short(after)} at last: {why}",
            "sessions", "fastseed env diff of the first and last folder in sessions/",
        )
        for _, path, _, before, after, why in serious[:_NAMES]
    ]  # fmt: skip


def _short(value: Any) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


# ---------------------------------------------------------------- the script's text


def script_of(command: Sequence[str]) -> int | None:
    """Where in a command the Python file is that it runs; None if it runs none that is here."""
    if re.fullmatch(r"python[\d.]*(\.exe)?|pypy[\d.]*", os.path.basename(command[0])) is None:
        return next(
            (i for i, one in enumerate(command) if one.endswith(".py") and os.path.isfile(one)),
            None,
        )
    at = 1
    while at < len(command) and command[at].startswith("-"):
        if command[at] in ("-c", "-m", "-"):
            return script_of(["", *command[1:]]) if command[at] == "-m" else None
        at += 2 if command[at] in ("-X", "-W") else 1
    return at if at < len(command) and os.path.isfile(command[at]) else None


def read_script(command: Sequence[str]) -> list[Finding]:
    """What the linter says about the script that a command runs."""
    at = script_of(command)
    if at is None:
        return []
    from .. import lint

    return [
        Finding(
            _KINDS.get(one.rule, "lint"), False, f"{one.rule} {one.message}",
            f"{one.path}:{one.line}", one.mend,
        )
        for one in lint.check([command[at]]).findings
    ]  # fmt: skip
