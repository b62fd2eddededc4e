"""Explain why runs differ, from recordings, checkpoints and the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from .comparison import Recorded
from .options import CHECKPOINT
from .result import Check, Run
from .run_directory import RunDirectory

_NAMES = 4  # in a list
_EXPERIMENTS = {"repeat": "uninterrupted", "truncate": "truncated", "resume": "resumed"}


def explain(checks: Sequence[Check], recorded: Sequence[Recorded]) -> list[str]:
    """Return why the first check failed that should not; a cause that is not certain says so."""
    failed = next((one for one in checks if one.passed is False and one.name != "baseline"), None)
    if failed is None:
        return []
    kind = _EXPERIMENTS.get(failed.name, "")
    pairs = [one for one in recorded if not one.found.equal and one.b.startswith(kind)]
    first = min(pairs, key=lambda one: one.found.step or 0, default=None)
    if failed.name == "truncate":
        cause = (
            "a truncated run differs before it stops: something depends on the number of epochs, "
            "such as a learning rate schedule; pass the total number as {total} and the number to "
            "stop at as [ ... {stop} ]"
        )
    elif first is None:
        cause = (
            "unknown, no tensors were recorded: record the runs with fastseed.debug.Watch, or run "
            "fastseed doctor"
        )
    else:
        cause = f"{first.b}: {explain_difference(first)}"
    return [cause]


def explain_difference(first: Recorded) -> str:
    """Return the likely cause of the first recorded difference, and how to fix it."""
    resumed, step, tensor = first.b.startswith("resumed"), first.found.step, first.found.first
    names = [one.name for one in first.found.differences if one.group == "generator"]
    generators = ", ".join(names[:_NAMES]) + ", ..." * (len(names) > _NAMES)
    if generators and resumed:
        return (
            f"generators in other states at step {step} ({generators}): used before training "
            "resumed, or not restored; call fastseed.reseed(task, epoch, step) last before resuming"
        )
    if generators:
        return (
            f"generators in other states at step {step} ({generators}): not seeded, or used a "
            "different number of times; call fastseed.init() and fastseed.reseed(task, epoch)"
        )
    if first.found.start and resumed:
        missing = [f"{one.group} {one.name}" for one in first.found.differences[:_NAMES]]
        return (
            f"the checkpoint does not restore {', '.join(missing)}: save and load "
            "model.state_dict(), optimizer.state_dict()"
        )
    if first.found.start:
        return (
            "unseeded initial weights: call fastseed.reseed(task, epoch) before the model is made"
        )
    if resumed and tensor is not None and tensor.group == "optimizer":
        return (
            f"a schedule that was not restored ({tensor.name}): save and load "
            "scheduler.state_dict(), optimizer.state_dict()"
        )
    if resumed:
        return (
            "other data in the first resumed step, by order, augmentation, or generators in "
            "workers: use fastseed.data.Loader and per_sample, which resume the data"
        )
    return (
        "no recorded generator differed, so this is likely an operation whose result depends on "
        "the order in which threads or atomics add, or a generator that is not registered: try "
        "fastseed run --deterministic, and fastseed doctor"
    )


def compare_checkpoints(runs: Sequence[Run]) -> list[str]:
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
                return [
                    f"the last checkpoint of {resumed} against that of {whole}: {'; '.join(shown)}"
                ]
    return []


def compare_sessions(directory: RunDirectory) -> list[str]:
    """Return the important differences between the environments of the first and last session."""
    from .. import environment

    sessions = directory.sessions()
    try:
        rows = environment.diff(sessions[0], sessions[-1]) if len(sessions) > 1 else []
    except (OSError, ValueError) as error:
        return [f"unknown, the environments were not compared: {error}"]
    important = [one for one in rows if one.level in ("critical", "high")]
    return [
        f"{one.path} was {str(one.before)[:60]} in the first session and {str(one.after)[:60]} in "
        f"the last: {one.why}"
        for one in important[:_NAMES]
    ]
