"""Explain why runs differ, from recordings and from the files that they left behind."""

from __future__ import annotations

from collections.abc import Sequence

from ...debug.bisection import Bisection
from .comparison import Measured

_NAMES = 4  # in a list


def shared_files(command: Sequence[str], measured: Sequence[Measured]) -> list[str]:
    """Return the files of the working folder in which runs may have found earlier ones' state."""
    names = sorted({name for one in measured for name in one.run.written})
    if not names or any("{run}" in word for word in command):
        return []
    shown = ", ".join(names[:_NAMES]) + ", ..." * (len(names) > _NAMES)
    return [
        f"the runs share the working folder, in which they wrote {shown}: a run may continue an "
        "earlier one's checkpoint; give the program {run}, an empty folder for each run's output"
    ]


def explain(found: Bisection, resumed: bool) -> str:
    """Return the likely cause of the first recorded difference, and how to fix it."""
    step, first = found.step, found.first
    names = [one.name.partition(" ") for one in found.differences]
    generators = [name for group, _, name in names if group == "generator"]
    listed = ", ".join(generators[:_NAMES]) + ", ..." * (len(generators) > _NAMES)
    if generators and resumed:
        return (
            f"generators in other states at step {step} ({listed}): used before training resumed, "
            "or not restored; call fastseed.reseed(task, epoch, step) last before resuming"
        )
    if generators:
        return (
            f"generators in other states at step {step} ({listed}): not seeded, or used a "
            "different number of times; call fastseed.init() and fastseed.reseed(task, epoch)"
        )
    if found.start and resumed:
        missing = ", ".join(one.name for one in found.differences[:_NAMES])
        return (
            f"the checkpoint does not restore {missing}, or the recording does not begin at its "
            "step: save and load model.state_dict(), optimizer.state_dict(); Watch(step=...)"
        )
    if found.start:
        return (
            "unseeded initial weights: call fastseed.reseed(task, epoch) before the model is made"
        )
    if resumed and first is not None and first.name.startswith("optimizer"):
        return (
            f"a schedule that was not restored ({first.name}): save and load "
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
        "--deterministic, and fastseed check"
    )
