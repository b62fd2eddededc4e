"""Explain why runs differ, from recordings, checkpoints and the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from .comparison import Recorded
from .options import CHECKPOINT
from .result import Check, Finding, Run

_NAMES = 4  # in a list
_ORDER = ("generator", "resume", "arithmetic", "tensor", "environment", "baseline")


def explain(
    checks: Sequence[Check], recorded: Sequence[Recorded], suspects: Sequence[Finding]
) -> list[Finding]:
    """Return the causes of the checks that failed and the suspects, the most important first."""
    named = {check.name: check for check in checks}
    found: list[Finding] = []
    order = ("repeat", "truncate", "resume", "tensors")
    failed = next((name for name in order if named[name].passed is False), None)
    if failed is not None:
        experiment = {"repeat": "uninterrupted", "truncate": "truncated", "resume": "resumed"}
        differing = [one for one in recorded if not one.found.equal]
        pairs = [one for one in differing if one.b.startswith(experiment.get(failed, ""))]
        first = min(pairs, key=lambda one: one.found.step or 0, default=None)
        if first is not None:
            found.append(_tensor(first))
        if failed == "truncate":
            found.append(_TRUNCATED)
        elif failed == "resume" or (first is not None and first.b.startswith("resumed")):
            found.append(resumed_differs(first))
        else:
            found.append(seeded_differ(first))
    if named["baseline"].passed is False:
        message = f"the unseeded baseline does not differ: {named['baseline'].message}"
        fix = "pass the seed as [ --seed {seed} ], or verify without the baseline"
        found.append(Finding("baseline", True, message, "", fix))
    return sorted([*found, *suspects], key=_importance)


def _importance(one: Finding) -> tuple[bool, int]:
    """Sort observed findings before likely ones."""
    return not one.certain, _ORDER.index(one.kind)


# ---------------------------------------------------------------- by check

_RECORD = "record the runs with fastseed.debug.Watch"
_TRUNCATED = Finding(
    "resume", True,
    "a truncated run differs before it stops: something depends on the number of epochs, such as a "
    "learning rate schedule",
    "", "pass the total number as {total} and the number to stop at as [ ... {stop} ]",
)  # fmt: skip


def seeded_differ(first: Recorded | None) -> Finding:
    """Explain why runs with the same seed differ."""
    if first is None:
        message = "the cause is unknown: no tensors were recorded"
        return Finding("tensor", False, message, "", f"{_RECORD}, or run fastseed doctor")
    tensor, step, states = first.found.first, first.found.step, _generators(first)
    where = f"{tensor.group} {tensor.name}, step {step}" if tensor else f"step {step}"
    if states:
        message = (
            f"{states} in different states at step {step}: not seeded, or used a different number "
            "of times"
        )
        fix = "seed it: fastseed.init() and fastseed.reseed(task, epoch)"
        return Finding("generator", True, message, f"{first.a}, {first.b}", fix)
    if first.found.start:
        message = "the initial weights differ: their initialization is not seeded"
        fix = "call fastseed.reseed(task, epoch) before creating the model"
        return Finding("generator", True, message, where, fix)
    equal = "all registered generators were in equal states at the difference: "
    message = (
        f"{equal if first.generators else ''}it is an operation whose result depends on the "
        "order in which threads or atomics add, or a generator that is not registered"
    )
    fix = (
        "fastseed run --deterministic: torch then refuses operations that it knows to be "
        "nondeterministic; fastseed doctor finds unseeded generators"
    )
    return Finding("arithmetic", False, message, where, fix)


def resumed_differs(first: Recorded | None) -> Finding:
    """Explain why resumed runs differ where uninterrupted and truncated ones repeat."""
    if first is None:
        message = (
            "resumed runs differ: something is missing from the checkpoint, or a generator was "
            "used before training resumed"
        )
        return Finding("resume", True, message, "", f"{_RECORD} to see which")
    found, states = first.found, _generators(first)
    tensor = found.first
    if found.start:
        names = [f"{one.group} {one.name}" for one in found.differences[:_NAMES]]
        message = f"the checkpoint does not restore {', '.join(names)}"
        fix = "save and load it: model.state_dict(), optimizer.state_dict()"
    elif states:
        message = (
            f"{states} in a different state in the resumed run: used before training resumed, or "
            "not restored"
        )
        fix = "call fastseed.reseed(task, epoch, step) last before resuming"
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
    return Finding("resume", True, message, f"{first.b}, step {found.step}", fix)


def _tensor(first: Recorded) -> Finding:
    found, tensor = first.found, first.found.first
    name = f"{tensor.group} {tensor.name}, " if tensor else ""
    before = " (before the first recorded one)" if found.start else ""
    message = (
        f"first difference between {first.a} and {first.b}: {name}step {found.step}{before}, rank "
        f"{found.rank}; {len(found.differences)} tensors differ there"
    )
    return Finding("tensor", True, message, f"{first.a}, {first.b}")


def _generators(first: Recorded) -> str:
    """Return the generators that differ with their verb; "" without any."""
    names = [one.name for one in first.found.differences if one.group == "generator"]
    shown = ", ".join(names[:_NAMES]) + (" and others" if len(names) > _NAMES else "")
    noun, verb = ("generator", "is") if len(names) == 1 else ("generators", "are")
    return f"{noun} {shown} {verb}" if names else ""


def compare_checkpoints(runs: Sequence[Run]) -> list[Finding]:
    """Return how many words further the generators are in the last checkpoint of a resumed run.

    It is compared with that of the uninterrupted run. Checkpoints without states give nothing.
    """
    from .. import rng_states

    paths = {run.name: os.path.join(run.folder, CHECKPOINT) for run in runs}
    for resumed in (name for name in paths if name.startswith("resumed")):
        whole, start = (resumed.replace("resumed", one) for one in ("uninterrupted", "truncated"))
        with contextlib.suppress(ValueError, OSError):
            different = rng_states.compare(paths[whole], paths[resumed])
            if different and rng_states.compare(paths[start], paths[resumed]):  # it was written
                shown = [f"{o.owner} {o.stream} {o.text}".strip() for o in different[:_NAMES]]
                message = f"the last checkpoint of {resumed} against that of {whole}: "
                fix = "restore the states of generators after everything else, before the next step"
                return [Finding("resume", True, message + "; ".join(shown), resumed, fix)]
    return []


# ---------------------------------------------------------------- environment


def read_environment(rows: Sequence[Sequence[Any]]) -> list[Finding]:
    """Return the important rows of ``fastseed.tools.environment.diff`` of two sessions."""
    return [
        Finding(
            "environment", True,
            f"{path} was {str(before)[:60]} in the first session and {str(after)[:60]} in the "
            f"last: {why}",
            "sessions", "run fastseed env diff on the first and last folder in sessions/",
        )
        for level, path, _, before, after, why in rows if level in ("critical", "high")
    ][:_NAMES]  # fmt: skip
