"""Compare the losses of all runs and reach a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from . import statistics
from .result import EXPERIMENTS, Band, Check, Curve, Difference, Floats, Paired, Run

IDENTICAL, REDUCED = "bit-identical", "variance reduced"
NOT_REPRODUCIBLE, INCONCLUSIVE = "not reproducible", "inconclusive"
PASSING = {"bit-identical": (IDENTICAL,), "variance": (IDENTICAL, REDUCED)}
"""Requirement -> the verdicts that meet it."""

_MOST = 100  # differences that a check keeps
_ENOUGH_DIGITS = 9  # identify every float32

_Pairs = Sequence[tuple[Run, Run]]


@dataclass(frozen=True)
class Verdict:
    """The verdict and what it is based on; the fields are those of the report."""

    verdict: str
    summary: str
    checks: tuple[Check, ...]
    bands: dict[str, Band]
    paired: tuple[Paired, ...]
    variance_ratio: float | None
    notes: tuple[str, ...]


def continue_steps(runs: Sequence[Run]) -> list[Run]:
    """Number the steps of resumed runs from the end of the truncated run, if logs have no names."""
    sizes = {run.number: len(run.curve.steps) for run in runs if run.experiment == "truncated"}
    found = []
    for run in runs:
        if run.experiment == "resumed" and not run.curve.labelled:
            begin = sizes[run.number]
            steps = tuple(str(begin + i) for i in range(len(run.curve.steps)))
            run = replace(run, curve=replace(run.curve, steps=steps))
        found.append(run)
    return found


def judge(runs: Sequence[Run], tensors: Check) -> Verdict:
    """Compare all runs bit by bit, then by their statistics.

    ``runs`` are those of :func:`continue_steps`; ``tensors`` is the check of the recordings.
    """
    uninterrupted, truncated, resumed, unseeded = (
        [run for run in runs if run.experiment == name] for name in EXPERIMENTS
    )
    joined = [
        (replace(rest, curve=_join(start.curve, rest.curve)), run)
        for start, rest, run in zip(truncated, resumed, uninterrupted, strict=True)
    ]
    checks = (
        _check_identical(
            "repeat", "runs with the same seed are identical", _with_first(uninterrupted)
        ),
        _check_identical(
            "truncate", "a truncated run matches the uninterrupted run",
            list(zip(truncated, uninterrupted, strict=True)), prefix=True,
        ),
        _check_identical("resume", "a resumed run matches the uninterrupted run", joined),
        _check_baseline(unseeded, uninterrupted),
        tensors,
    )  # fmt: skip
    curves = {
        name: [run.curve for run in found]
        for name, found in zip(
            EXPERIMENTS, (uninterrupted, truncated, resumed, unseeded), strict=True
        )
        if found
    }
    bands = {name: statistics.band(found) for name, found in curves.items()}
    first = curves["uninterrupted"]
    paired = [
        statistics.paired("uninterrupted", "resumed", first, [run.curve for run, _ in joined])
    ]
    ratio = None
    if unseeded:
        paired.append(statistics.paired("uninterrupted", "unseeded", first, curves["unseeded"]))
        ratio = statistics.variance_ratio(bands["uninterrupted"], bands["unseeded"])
    complete = all(set(a.curve.steps) == set(b.curve.steps) for a, b in joined)
    reduced = (
        ratio is not None
        and complete
        and paired[0].interval99 is not None
        and 0.0 in paired[0].interval99
        and statistics.is_smaller(ratio, len(uninterrupted), len(unseeded))
    )
    verdict, summary = _conclude(checks, ratio if reduced else None)
    return Verdict(
        verdict, summary, checks, bands, tuple(paired), ratio, tuple(_notes(runs, paired))
    )


def waive_failures(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Return the checks of a verification that passed: a failed one was not required."""
    return tuple(
        one
        if one.passed is not False
        else replace(one, passed=None, message=f"not required: {one.message}")
        for one in checks
    )


def _conclude(checks: Sequence[Check], reduced: float | None) -> tuple[str, str]:
    """Return the verdict and its summary; ``reduced`` is a significantly reduced variance."""
    *same, baseline, tensors = checks
    if all(check.identical for check in (*same, tensors)):
        if baseline.passed is False:
            return INCONCLUSIVE, (
                "seeded runs are bit-identical, but the unseeded baseline does not differ "
                f"({baseline.message}): the command gets its seed from elsewhere, or these losses "
                "do not depend on it"
            )
        return IDENTICAL, "seeded runs are bit-identical, whether resumed or not"
    wrong = "; ".join(check.message for check in same if not check.identical)
    if not wrong:
        return (
            NOT_REPRODUCIBLE,
            f"losses are identical, but not recorded tensors: {tensors.message}",
        )
    if reduced is not None:
        return REDUCED, (
            f"runs are not bit-identical ({wrong}), but the seed reduces the variance of their "
            f"losses to {reduced:.3g} of the unseeded baseline's, and the 99% interval of the "
            "effect of resuming contains 0"
        )
    return NOT_REPRODUCIBLE, wrong


# ---------------------------------------------------------------- checks


def _count(n: int) -> str:
    return f"{n} pair{'' if n == 1 else 's'} of runs"


def _check_identical(name: str, title: str, pairs: _Pairs, *, prefix: bool = False) -> Check:
    """Check that all pairs are identical; with ``prefix`` the first one may lack steps."""
    if not pairs:
        return Check(name, title, None, True, "not checked: it needs two runs")
    found = [one for a, b in pairs if (one := compare(a, b, prefix=prefix))]
    if not found:
        message = f"{_count(len(pairs))} bit-identical"
        return Check(name, title, True, True, message, (), len(pairs))
    message = f"{len(found)} of {_count(len(pairs))} differ: {describe(found[0])}"
    return Check(name, title, False, False, message, tuple(found[:_MOST]), len(pairs))


def _check_baseline(unseeded: Sequence[Run], seeded: Sequence[Run]) -> Check:
    """Check that unseeded runs differ, from one another and from seeded ones."""
    name, title = "baseline", "runs of the unseeded baseline differ"
    if not unseeded:
        return Check(name, title, None, False, "not checked")
    pairs = [*_with_first(unseeded), *zip(unseeded, seeded, strict=False)]
    found = [compare(a, b) for a, b in pairs]
    equal = [pair for pair, one in zip(pairs, found, strict=True) if one is None]
    message = f"{_count(len(pairs))} differ"
    if equal:
        a, b = equal[0]
        message = f"{len(equal)} of {_count(len(pairs))} identical: {a.name} and {b.name}"
    differences = tuple(one for one in found if one is not None)[:_MOST]
    return Check(name, title, not equal, not differences, message, differences, len(pairs))


def describe(found: Difference) -> str:
    """Return a difference in a sentence."""
    if found.step is None:
        return f"{found.a} and {found.b} have no step in common"
    a, b = ("no loss" if one is None else repr(one) for one in (found.value_a, found.value_b))
    return (
        f"first difference between {found.a} and {found.b} at step {found.step}: {a} and {b} "
        f"({found.differing} of {found.compared} steps differ)"
    )


def _with_first(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    return [(runs[0], run) for run in runs[1:]]


def _join(start: Curve, rest: Curve) -> Curve:
    """Return a truncated and a resumed curve as one; of a common step the resumed value."""
    after = set(rest.steps)
    kept = [i for i, step in enumerate(start.steps) if step not in after]
    steps = (*(start.steps[i] for i in kept), *rest.steps)
    return Curve(steps, np.concatenate([start.values[kept], rest.values]))


def compare(a: Run, b: Run, *, prefix: bool = False) -> Difference | None:
    """Return the first difference, in the order of ``b``; None if they are equal.

    A step that one run lacks is a difference; with ``prefix``, ``a`` may lack some.
    """
    left, right = a.curve, b.curve
    extra: list[str] = []
    if left.steps == right.steps:
        index = np.arange(len(right.steps))
    else:
        at = {step: i for i, step in enumerate(left.steps)}
        index = np.array([at.get(step, -1) for step in right.steps], dtype=np.int64)
        known = set(right.steps)
        extra = [step for step in left.steps if step not in known]
    common = index >= 0
    if not common.any():
        return Difference(a.name, b.name, None, None, None, 0, 0)
    differs = np.full(len(index), not prefix)
    differs[common] = ~_equal(left.values[index[common]], right.values[common])
    if not differs.any() and not extra:
        return None
    value_a = value_b = None
    if differs.any():
        i = int(differs.argmax())
        step, value_b = right.steps[i], float(right.values[i])
        value_a = float(left.values[index[i]]) if common[i] else None
    else:
        step = extra[0]
        value_a = float(left.values[left.steps.index(step)])
    differing, compared = int((differs & common).sum()), int(common.sum())
    return Difference(a.name, b.name, step, value_a, value_b, differing, compared)


def _equal(a: Floats, b: Floats) -> npt.NDArray[np.bool_]:
    """Return where the bits are equal; all NaN are, since their text is the same."""
    same: npt.NDArray[np.bool_] = a.view(np.int64) == b.view(np.int64)
    return same | (np.isnan(a) & np.isnan(b))


# ---------------------------------------------------------------- notes


def _notes(runs: Sequence[Run], paired: Sequence[Paired]) -> Iterator[str]:
    digits = max(run.curve.digits for run in runs)
    if digits < _ENOUGH_DIGITS:
        yield (
            f"losses have at most {digits} significant digits, so only these are compared; write "
            "them with repr() or as JSON"
        )
    if not all(np.isfinite(run.curve.values).all() for run in runs):
        yield "some losses are not finite, nor are the statistics of their steps"
    if len({run.curve.steps for run in runs if run.experiment == "uninterrupted"}) > 1:
        yield "uninterrupted runs have different steps"
    first: dict[str, str] = {}
    for run in runs:
        for note in run.curve.notes:
            first.setdefault(note, run.name)
    yield from (f"{name}: {note}" for note, name in first.items())
    if any(one.pairs > 1 and one.interval95 is None for one in paired):
        yield (
            "without SciPy there are no Student-t intervals and no F test, so a reduced variance "
            'is not detected: pip install "fastseed[report]"'
        )
