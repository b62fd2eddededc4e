"""Explain why runs differ, from recordings, an audited run, the script's text and the environment.

Observed are: the first tensor that differs (:class:`fastseed.debug.Watch`), generators in different
states at that step, unseeded random numbers (one more run under :func:`fastseed.debug.audit`), and
changes of the environment. If none of these explains a difference, arithmetic remains.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .recordings import FirstDifference, first_difference
from .result import Check, Finding, Run

_NAMES = 4  # in a list
_ORDER = (
    *("generator", "worker", "resume", "arithmetic", "tensor", "environment", "baseline"),
    *("audit", "lint"),
)
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
"""Rule of the linter -> the kind of difference that it explains; ``lint`` for the others."""


def explain(
    checks: Sequence[Check],
    runs: Sequence[Run],
    directory: Path,
    suspects: Sequence[Finding],
    audited: bool,
) -> list[Finding]:
    """Return the causes of the checks that failed and the suspects, the most important first.

    Args:
        checks, runs, directory: the checks, the runs, and the folder that they are in.
        suspects: findings of the audit, the linter and the environment.
        audited: True if an audited run succeeded.
    """
    named = {check.name: check for check in checks}
    found: list[Finding] = []
    failed = next(
        (name for name in ("repeat", "truncate", "resume", "tensors") if not named[name].identical),
        None,
    )
    if failed is not None:
        first = first_difference(named[failed], runs, directory)
        if failed == "tensors" and first is not None and first.b.startswith("resumed"):
            failed = "resume"
        if failed == "truncate":
            found += _truncated_differs(first)
        elif failed == "resume":
            found += resumed_differs(first)
        else:
            found += seeded_differ(first, suspects, audited)
    if named["baseline"].passed is False:
        message = f"the unseeded baseline does not differ: {named['baseline'].message}"
        fix = "pass the seed as [ --seed {seed} ], or verify without the baseline"
        found.append(Finding("baseline", True, message, "", fix))
    return sorted([*found, *suspects], key=_importance)


def _importance(one: Finding) -> tuple[bool, bool, int]:
    """Sort causes before remarks, and observed findings before likely ones."""
    return one.kind in ("audit", "lint"), not one.certain, _ORDER.index(one.kind)


# ---------------------------------------------------------------- by check


def seeded_differ(
    first: FirstDifference | None, suspects: Sequence[Finding], audited: bool
) -> Iterator[Finding]:
    """Explain why runs with the same seed differ."""
    where = ""
    if first is not None and first.found.first is not None:
        yield _tensor(first)
        tensor, step = first.found.first, first.found.step
        where = f"{tensor.group} {tensor.name}, step {step}"
        states = _generators(first)
        if states:
            message = (
                f"{_list('generator', states)} in different states at step {step}: not seeded, or "
                "used a different number of times"
            )
            fix = "seed it: fastseed.init() and fastseed.reseed(task, epoch)"
            yield Finding("generator", True, message, f"{first.a}, {first.b}", fix)
            return
        if first.found.start:
            message = "the initial weights differ: their initialization is not seeded"
            fix = "call fastseed.reseed(task, epoch) before creating the model"
            yield Finding("generator", True, message, f"{tensor.group} {tensor.name}", fix)
            return
    if any(one.kind in ("generator", "worker") for one in suspects):
        return  # these are better explanations
    equal = first is not None and first.generators
    record = "record the runs with fastseed.debug.Watch"
    if not equal and not audited:
        if not where:
            message = "the cause is unknown: no tensors were recorded and no run was audited"
            yield Finding("tensor", False, message, "", record)
        return
    operation = "an operation whose result depends on the order in which threads or atomics add"
    unseeded = "no use of an unseeded generator was detected"
    if equal:
        also = f", and {unseeded}" if audited else ""
        message = f"all generators were in equal states at the difference{also}: it is {operation}"
    else:
        message = (
            f"{unseeded}: the remaining causes are random numbers in other processes, such as "
            f"DataLoader workers, and {operation}"
        )
    then = "check what computes this tensor" if where else record
    fix = (
        "fastseed run --deterministic, or fastseed.deterministic(): torch then refuses operations "
        f"that it knows to be nondeterministic; {then}"
    )
    yield Finding("arithmetic", equal, message, where, fix)


def _truncated_differs(first: FirstDifference | None) -> Iterator[Finding]:
    """Explain why truncated runs differ where uninterrupted ones repeat."""
    if first is not None and first.found.first is not None:
        yield _tensor(first)
    yield Finding(
        "resume", True,
        "a truncated run differs before it stops: something depends on the number of epochs, such "
        "as a learning rate schedule",
        "", "pass the total number as {total} and the number to stop at as [ ... {stop} ]",
    )  # fmt: skip


def resumed_differs(first: FirstDifference | None) -> Iterator[Finding]:
    """Explain why resumed runs differ where uninterrupted and truncated ones repeat."""
    if first is None or first.found.first is None:
        yield Finding(
            "resume", True,
            "resumed runs differ: something is missing from the checkpoint, or a generator was "
            "used before training resumed",
            "", "record the runs with fastseed.debug.Watch to see which",
        )  # fmt: skip
        return
    yield _tensor(first)
    found, states = first.found, _generators(first)
    where = f"{first.b}, step {found.step}"
    tensor = first.found.first
    if found.start:
        names = [f"{one.group} {one.name}" for one in found.differences[:_NAMES]]
        message = f"the checkpoint does not restore {', '.join(names)}"
        fix = "save and load it: model.state_dict(), optimizer.state_dict()"
    elif states:
        message = (
            f"{_list('generator', states)} in a different state in the resumed run: used before "
            "training resumed, or not restored"
        )
        fix = (
            "call fastseed.reseed(task, epoch, step) last before resuming, or restore exact states"
        )
    elif tensor is not None and tensor.group == "optimizer":
        settings = [one.name for one in found.differences if one.group == "optimizer"][:_NAMES]
        message = (
            f"the optimizer's {', '.join(settings)} differs in the resumed run: its schedule was "
            "not restored"
        )
        fix = "save and load it: scheduler.state_dict(), optimizer.state_dict()"
    else:
        equal = "generators, " if first.generators else ""
        message = (
            f"with the same {equal}weights and optimizer the first resumed step differs: its data "
            "differ, by order, augmentation, or generators in workers"
        )
        fix = "use fastseed.data.ResumableLoader and per_sample, which resume the data"
    yield Finding("resume", True, message, where, fix)


def _tensor(first: FirstDifference) -> Finding:
    found, tensor = first.found, first.found.first
    assert tensor is not None
    before = " (before the first recorded one)" if found.start else ""
    more = f"; {len(found.differences) - 1} more there" if len(found.differences) > 1 else ""
    return Finding(
        "tensor", True,
        f"first difference between {first.a} and {first.b}: {tensor.group} {tensor.name}, step "
        f"{found.step}{before}, rank {found.rank}{more}",
        f"{first.a}, {first.b}",
    )  # fmt: skip


def _generators(first: FirstDifference) -> list[str]:
    return [one.name for one in first.found.differences if one.group == "generator"]


def _list(noun: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES]) + (" and others" if len(names) > _NAMES else "")
    return f"{noun} {shown} is" if len(names) == 1 else f"{noun}s {shown} are"


# ---------------------------------------------------------------- environment and script


def read_environment(rows: Sequence[tuple[Any, ...]]) -> list[Finding]:
    """Return the important differences between the environments of two sessions.

    ``rows`` are those of :func:`fastseed.tools.environment.diff`.
    """
    important = [row for row in rows if row[0] in ("critical", "high")][:_NAMES]
    return [
        Finding(
            "environment", True,
            f"{path} was {_shorten(before)} in the first session and {_shorten(after)} in the "
            f"last: {why}",
            "sessions", "run fastseed env diff on the first and last folder in sessions/",
        )
        for _, path, _, before, after, why in important
    ]  # fmt: skip


def _shorten(value: Any) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def find_script(command: Sequence[str]) -> int | None:
    """Return the index of the Python file that a command runs; None without one."""
    if re.fullmatch(r"python[\d.]*(\.exe)?|pypy[\d.]*", os.path.basename(command[0])) is None:
        files = (i for i, one in enumerate(command) if one.endswith(".py") and os.path.isfile(one))
        return next(files, None)
    at = 1
    while at < len(command) and command[at].startswith("-"):
        if command[at] in ("-c", "-m", "-"):
            return find_script(["", *command[1:]]) if command[at] == "-m" else None
        at += 2 if command[at] in ("-X", "-W") else 1
    return at if at < len(command) and os.path.isfile(command[at]) else None


def lint_script(command: Sequence[str]) -> list[Finding]:
    """Return what the linter finds in the script of a command."""
    at = find_script(command)
    if at is None:
        return []
    from .. import lint

    return [
        Finding(
            _KINDS.get(one.rule, "lint"), False, f"{one.rule} {one.message}",
            f"{one.path}:{one.line}", one.fix,
        )
        for one in lint.check([command[at]]).findings
    ]  # fmt: skip
