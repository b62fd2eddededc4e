"""Compare the losses and the recordings of all runs, and reach a verdict."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...debug.bisection import Bisection, bisect
from ...debug.watch_file import Recording
from .options import EXPERIMENTS
from .result import (
    DIFFERENT,
    IDENTICAL,
    INCONCLUSIVE,
    Band,
    Check,
    Curve,
    Difference,
    Floats,
    Run,
    Steps,
)

_MOST = 100  # differences that a check keeps
_ENOUGH_DIGITS = 9  # identify every float32

_Pairs = Sequence[tuple[Run, Run]]


def continue_steps(runs: Sequence[Run]) -> list[Run]:
    """Number the steps of resumed runs from the end of the truncated run, if logs have no names."""
    sizes = {run.number: len(run.curve.steps) for run in runs if run.experiment == "truncated"}
    return [
        replace(run, curve=replace(run.curve, steps=run.curve.steps + sizes[run.number]))
        if run.experiment == "resumed" and not run.curve.labelled
        else run
        for run in runs
    ]


def check_all(runs: Sequence[Run], recorded: Sequence[Recorded]) -> tuple[Check, ...]:
    """Compare all runs bit by bit; ``runs`` are those of ``continue_steps``."""
    uninterrupted, truncated, resumed, unseeded = (
        [run for run in runs if run.experiment == name] for name in EXPERIMENTS
    )
    joined = [
        (replace(rest, curve=_join(start.curve, rest.curve)), run)
        for start, rest, run in zip(truncated, resumed, uninterrupted, strict=True)
    ]
    truncations = list(zip(truncated, uninterrupted, strict=True))
    return (
        _check("repeat", "runs with the same seed are identical", _with_first(uninterrupted)),
        _check("truncate", "a truncated run matches the uninterrupted run", truncations, True),
        _check("resume", "a resumed run matches the uninterrupted run", joined),
        _check_baseline(unseeded, uninterrupted),
        _check_tensors(recorded),
    )


def conclude(checks: Sequence[Check]) -> tuple[str, str]:
    """Return the verdict and its summary."""
    *same, baseline, tensors = checks
    wrong = "; ".join(check.message for check in same if check.passed is False)
    if wrong:
        return DIFFERENT, wrong
    if tensors.passed is False:
        return DIFFERENT, f"losses are identical, but not recorded tensors: {tensors.message}"
    if baseline.passed is False:
        return INCONCLUSIVE, (
            "seeded runs are bit-identical, but the unseeded baseline does not differ "
            f"({baseline.message}): the command gets its seed from elsewhere, or these losses do "
            "not depend on it"
        )
    return IDENTICAL, "seeded runs are bit-identical, whether resumed or not"


# ---------------------------------------------------------------- checks


def _count(n: int) -> str:
    return f"{n} pair{'' if n == 1 else 's'} of runs"


def _check(name: str, title: str, pairs: _Pairs, prefix: bool = False) -> Check:
    """Check that all pairs are identical."""
    if not pairs:
        return Check(name, title, None, "not checked: it needs two runs")
    found = [one for a, b in pairs if (one := compare(a, b, prefix=prefix))]
    message = f"{_count(len(pairs))} bit-identical"
    if found:
        message = f"{len(found)} of {_count(len(pairs))} differ: {found[0]}"
    return Check(name, title, not found, message, tuple(found[:_MOST]), len(pairs))


def _check_baseline(unseeded: Sequence[Run], seeded: Sequence[Run]) -> Check:
    """Check that unseeded runs differ, from one another and from seeded ones."""
    name, title = "baseline", "runs of the unseeded baseline differ"
    if not unseeded:
        return Check(name, title, None, "not checked")
    pairs = [*_with_first(unseeded), *zip(unseeded, seeded, strict=True)]
    equal = [(a, b) for a, b in pairs if compare(a, b) is None]
    message = f"{_count(len(pairs))} differ"
    if equal:
        a, b = equal[0]
        message = f"{len(equal)} of {_count(len(pairs))} identical: {a.name} and {b.name}"
    return Check(name, title, not equal, message, (), len(pairs))


def _check_tensors(compared: Sequence[Recorded]) -> Check:
    """Check that seeded runs recorded equal tensors at each step that both recorded."""
    name, title = "tensors", "recorded tensors are identical"
    if not compared:
        return Check(name, title, None, "not checked: no run recorded with fastseed.debug.Watch")
    differing = [one for one in compared if not one.found.equal]
    steps = sum(one.found.compared for one in compared)
    message = f"{_count(len(compared))} bit-identical in {steps} steps"
    if differing:
        a, b, first, _ = differing[0]
        message = f"{len(differing)} of {_count(len(compared))} differ: {a} and {b}: {first}"
    return Check(name, title, not differing, message, (), len(compared))


def _with_first(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    return [(runs[0], run) for run in runs[1:]]


# ---------------------------------------------------------------- losses


def _join(start: Curve, rest: Curve) -> Curve:
    """Return a truncated and a resumed curve as one; of a common step the resumed value."""
    first, second = _alike(start.steps, rest.steps)
    kept = ~np.isin(first, second)
    steps = np.concatenate([first[kept], second])
    return Curve(steps, np.concatenate([start.values[kept], rest.values]))


def compare(a: Run, b: Run, *, prefix: bool = False) -> Difference | None:
    """Return the first difference, in the order of ``b``; None if they are equal.

    A step that one run lacks is a difference; with ``prefix``, ``a`` may lack some.
    """
    left, right = a.curve, b.curve
    steps_a, steps_b = _alike(left.steps, right.steps)
    if np.array_equal(steps_a, steps_b):
        index_a = index_b = np.arange(len(steps_a))
    else:
        _, index_a, index_b = np.intersect1d(
            steps_a, steps_b, assume_unique=True, return_indices=True
        )
    if not len(index_a):
        return Difference(a.name, b.name, None, None, None, 0, 0)
    wrong = np.full(len(steps_b), not prefix)
    wrong[index_b] = ~_equal(left.values[index_a], right.values[index_b])
    extra = np.ones(len(steps_a), dtype=bool)
    extra[index_a] = False
    if wrong.any():
        step = steps_b[wrong.argmax()]
    elif extra.any():
        step = steps_a[extra.argmax()]
    else:
        return None
    value_a, value_b = (
        float(curve.values[steps == step][0]) if (steps == step).any() else None
        for curve, steps in ((left, steps_a), (right, steps_b))
    )
    differing = int(wrong[index_b].sum())
    return Difference(a.name, b.name, str(step), value_a, value_b, differing, len(index_a))


def _alike(a: Steps, b: Steps) -> tuple[Steps, Steps]:
    """Return both as text if one of them is."""
    return (a, b) if a.dtype.kind == b.dtype.kind else (a.astype(str), b.astype(str))


def _equal(a: Floats, b: Floats) -> npt.NDArray[np.bool_]:
    """Return where the bits are equal; all NaN are, since their text is the same."""
    same: npt.NDArray[np.bool_] = a.view(np.int64) == b.view(np.int64)
    return same | (np.isnan(a) & np.isnan(b))


def band(runs: Sequence[Run]) -> Band:
    """Return mean and standard deviation at the steps that all ``runs`` have."""
    steps = runs[0].curve.steps
    for run in runs[1:]:
        if run.curve.steps is not steps:
            steps, other = _alike(steps, run.curve.steps)
            steps = steps[np.isin(steps, other)]
    values = np.stack([_at(run.curve, steps) for run in runs])
    with np.errstate(all="ignore"):  # losses may not be finite
        mean = values.mean(axis=0)
        std = values.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(steps))
    # Equal values have no spread, even if rounding changes their mean.
    same = (values == values[0]).all(axis=0)
    return Band(len(runs), steps, np.where(same, values[0], mean), np.where(same, 0.0, std))


def _at(curve: Curve, steps: Steps) -> Floats:
    """Return the losses of a curve at ``steps``, which it has."""
    if curve.steps is steps:
        return curve.values
    own, steps = _alike(curve.steps, steps)
    order = np.argsort(own)
    return curve.values[order[np.searchsorted(own, steps, sorter=order)]]


# ---------------------------------------------------------------- recordings


class Recorded(NamedTuple):
    """The comparison of what two runs recorded."""

    a: str
    b: str
    found: Bisection
    generators: bool
    """True if both recorded the states of the generators."""


def compare_recordings(runs: Sequence[Run]) -> list[Recorded]:
    """Compare seeded runs that recorded; those without a common step are left out."""
    uninterrupted = [run for run in runs if run.experiment == "uninterrupted"]
    pairs = _with_first(uninterrupted)
    pairs += [(uninterrupted[run.number], run) for run in runs if run.experiment == "truncated"]
    pairs += [(uninterrupted[run.number], run) for run in runs if run.experiment == "resumed"]
    files = {run.name: sorted(Path(run.folder).rglob("rank-*.watch")) for run in runs}
    compared = []
    for a, b in pairs:
        first = [*files[a.name][:1], *files[b.name][:1]]
        with contextlib.suppress(ValueError, OSError):  # no common step, or cut off
            if len(first) == 2:
                states = all("generator" in Recording(one).header["groups"] for one in first)
                found = bisect(first[0].parent, first[1].parent)
                compared.append(Recorded(a.name, b.name, found, states))
    return compared


# ---------------------------------------------------------------- notes


def notes_about(runs: Sequence[Run]) -> Iterator[str]:
    """Yield remarks about the logs."""
    digits = max(run.curve.digits for run in runs)
    if digits < _ENOUGH_DIGITS:
        yield (
            f"losses have at most {digits} significant digits, so only these are compared; write "
            "them with repr() or as JSON"
        )
    if not all(np.isfinite(run.curve.values).all() for run in runs):
        yield "some losses are not finite, nor are the statistics of their steps"
    first: dict[str, str] = {}
    for run in runs:
        for note in run.curve.notes:
            first.setdefault(note, run.name)
    yield from (f"{name}: {note}" for note, name in first.items())
