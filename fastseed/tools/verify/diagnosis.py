"""Explain why runs differ, from recordings, checkpoints and the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from .comparison import Recorded
from .options import CHECKPOINT
from .result import Check, Finding, Run
from .run_directory import RunDirectory

_NAMES = 4  # in a list
_ORDER = ("generator", "resume", "arithmetic", "tensor", "environment", "baseline")
_EXPERIMENTS = {"repeat": "uninterrupted", "truncate": "truncated", "resume": "resumed"}


def explain(
    checks: Sequence[Check], recorded: Sequence[Recorded], suspects: Sequence[Finding]
) -> list[Finding]:
    """Return the causes of the checks that failed and the suspects, the most important first."""
    found: list[Finding] = []
    failed = next((one for one in checks if one.passed is False and one.name != "baseline"), None)
    if failed is not None:
        kind = _EXPERIMENTS.get(failed.name, "")
        pairs = [one for one in recorded if not one.found.equal and one.b.startswith(kind)]
        first = min(pairs, key=lambda one: one.found.step or 0, default=None)
        if first is not None:
            found.append(Finding("tensor", True, str(first), first.b))
        found.append(explain_check(failed.name, first))
    for one in checks:
        if one.name == "baseline" and one.passed is False:
            message = f"the unseeded baseline does not differ: {one.message}"
            fix = "pass the seed as [ --seed {seed} ], or verify without the baseline"
            found.append(Finding("baseline", True, message, "", fix))
    return sorted([*found, *suspects], key=lambda one: (not one.certain, _ORDER.index(one.kind)))


def explain_check(failed: str, first: Recorded | None) -> Finding:
    """Return the likely cause of a check that failed, from the first recorded difference."""
    if failed == "truncate":
        message = (
            "a truncated run differs before it stops: something depends on the number of epochs, "
            "such as a learning rate schedule"
        )
        fix = "pass the total number as {total} and the number to stop at as [ ... {stop} ]"
        return Finding("resume", True, message, "", fix)
    if first is None:
        message = "the cause is unknown: no tensors were recorded"
        fix = "record the runs with fastseed.debug.Watch, or run fastseed doctor"
        return Finding("tensor", False, message, "", fix)
    resumed, step = first.b.startswith("resumed"), first.found.step
    kind, certain = "resume" if resumed else "generator", True
    tensor = first.found.first
    names = [one.name for one in first.found.differences if one.group == "generator"]
    if names:
        noun, verb = ("generators", "are") if names[1:] else ("generator", "is")
        more = " and others" * (len(names) > _NAMES)
        message = f"{noun} {', '.join(names[:_NAMES])}{more} {verb} in a different state: " + (
            "used before training resumed, or not restored"
            if resumed
            else "not seeded, or used a different number of times"
        )
        fix = "call fastseed.reseed(task, epoch, step), in a resumed run last before training"
    elif first.found.start and resumed:
        missing = [f"{one.group} {one.name}" for one in first.found.differences[:_NAMES]]
        message = f"the checkpoint does not restore {', '.join(missing)}"
        fix = "save and load it: model.state_dict(), optimizer.state_dict()"
    elif first.found.start:
        message = "the initial weights differ: their initialization is not seeded"
        fix = "call fastseed.reseed(task, epoch) before creating the model"
    elif resumed and tensor is not None and tensor.group == "optimizer":
        message = f"the optimizer's {tensor.name} differs: its schedule was not restored"
        fix = "save and load it: scheduler.state_dict(), optimizer.state_dict()"
    elif resumed:
        message = (
            "with the same weights and optimizer the first resumed step differs: its data differ, "
            "by order, augmentation, or generators in workers"
        )
        fix = "use fastseed.data.ResumableLoader and per_sample, which resume the data"
    else:
        kind, certain = "arithmetic", False
        message = (
            "no recorded generator differed: it is an operation whose result depends on the order "
            "in which threads or atomics add, or a generator that is not registered"
        )
        fix = (
            "fastseed run --deterministic: torch then refuses operations that it knows to be "
            "nondeterministic; fastseed doctor finds unseeded generators"
        )
    return Finding(kind, certain, message, f"{first.b}, step {step}", fix)


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


def compare_sessions(directory: RunDirectory) -> list[Finding]:
    """Return the important differences between the environments of the first and last session."""
    from .. import environment

    sessions = directory.sessions()
    try:
        rows = environment.diff(sessions[0], sessions[-1]) if len(sessions) > 1 else []
    except (OSError, ValueError) as error:
        directory.notes.append(f"the environments were not compared: {error}")
        return []
    important = [one for one in rows if one.level in ("critical", "high")]
    return [
        Finding(
            "environment", True,
            f"{one.path} was {str(one.before)[:60]} in the first session and "
            f"{str(one.after)[:60]} in the last: {one.why}",
            "sessions", "run fastseed env diff on the first and last folder in sessions/",
        )
        for one in important[:_NAMES]
    ]  # fmt: skip
