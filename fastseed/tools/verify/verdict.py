"""From what runs wrote to whether they are the same run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from . import statistics
from .result import Band, Check, Curve, Difference, Paired, Run

IDENTICAL, REDUCED = "bit-identical", "variance reduced"
NOT, NO_CONTROL = "not reproducible", "no control"
REQUIRED = {"bit-identical": (IDENTICAL,), "variance": (IDENTICAL, REDUCED)}
"""What can be asked for, and the verdicts that pass then."""

_MOST = 100  # differences of a check that are kept
_ENOUGH_DIGITS = 9  # tell any two float32


@dataclass(frozen=True)
class Verdict:
    """What follows from the losses alone; the fields are those of the report."""

    verdict: str
    says: str
    checks: tuple[Check, ...]
    bands: dict[str, Band]
    paired: tuple[Paired, ...]
    variance_ratio: float | None
    notes: tuple[str, ...]


def placed(runs: Sequence[Run]) -> list[Run]:
    """The runs; resumed ones whose log does not name its steps go on where the half run ended."""
    halves = {run.number: len(run.curve.steps) for run in runs if run.experiment == "half"}
    found = []
    for run in runs:
        if run.experiment == "resumed" and not run.curve.labelled:
            begin = halves[run.number]
            steps = tuple(str(begin + i) for i in range(len(run.curve.steps)))
            run = replace(run, curve=replace(run.curve, steps=steps))
        found.append(run)
    return found


def judge(runs: Sequence[Run], tensors: Check) -> Verdict:
    """Compare all runs (of :func:`placed`) by the bits of their losses, then by their statistics.

    ``tensors`` is what the recordings say (:mod:`recordings`).
    """
    of = {
        name: [run for run in runs if run.experiment == name]
        for name in ("whole", "half", "resumed", "unseeded")
    }
    checks = (
        _same("repeat", "runs of one seed repeat", _against_first(of["whole"])),
        _same(
            "prefix", "a run that stops half-way is the same up to there",
            list(zip(of["half"], of["whole"], strict=True)), part=True,
        ),
        _same(
            "resume", "a run that was stopped and resumed goes on as the one that was not",
            _joined(of["half"], of["resumed"], of["whole"]),
        ),
        _control(of["unseeded"], of["whole"]),
        tensors,
    )  # fmt: skip
    curves = {name: [run.curve for run in found] for name, found in of.items() if found}
    bands = {name: statistics.band(found) for name, found in curves.items()}
    joined = [one.curve for one, _ in _joined(of["half"], of["resumed"], of["whole"])]
    paired = [statistics.paired("whole", "resumed", curves["whole"], joined)]
    if of["unseeded"]:
        paired.append(statistics.paired("whole", "unseeded", curves["whole"], curves["unseeded"]))
    ratio = None
    if "unseeded" in bands:
        ratio = statistics.variance_ratio(bands["whole"], bands["unseeded"])
    complete = all(
        set(a.curve.steps) == set(b.curve.steps)
        for a, b in _joined(of["half"], of["resumed"], of["whole"])
    )
    verdict, says = _verdict(checks, paired[0], ratio, len(of["whole"]), complete)
    notes = [*_notes(runs), *_without_scipy(paired)]
    return Verdict(verdict, says, checks, bands, tuple(paired), ratio, tuple(notes))


def not_required(checks: Sequence[Check]) -> tuple[Check, ...]:
    """The checks of a verification that passed: one that failed was not required to."""
    return tuple(
        one
        if one.passed is not False
        else replace(one, passed=None, says=f"not required: {one.says}")
        for one in checks
    )


def _verdict(
    checks: Sequence[Check], resumed: Paired, ratio: float | None, runs: int, complete: bool
) -> tuple[str, str]:
    """``complete`` says whether each resumed run has all steps of a whole one, and no others."""
    *same, control, tensors = checks
    if all(check.identical for check in (*same, tensors)):
        if control.passed is False:
            return NO_CONTROL, (
                "seeded runs are equal to the last bit, but those without a seed do not all differ "
                f"({control.says}): either the command takes its seed from elsewhere, or these "
                "losses do not depend on it"
            )
        return IDENTICAL, "seeded runs, stopped and resumed or not, are equal to the last bit"
    wrong = "; ".join(check.says for check in same if not check.identical)
    if not wrong:
        return NOT, f"losses are equal to the last bit, but not what was recorded: {tensors.says}"
    inside = resumed.interval99 is not None and 0.0 in resumed.interval99
    if ratio is not None and complete and inside and statistics.is_smaller(ratio, runs, runs):
        return REDUCED, (
            f"runs are not equal to the last bit ({wrong}), but a seed reduces the variance of "
            f"their losses to {ratio:.3g} of what it is without, and the 99% interval of what "
            "resuming changes holds 0"
        )
    return NOT, wrong


def _same(name: str, title: str, pairs: Sequence[tuple[Run, Run]], *, part: bool = False) -> Check:
    """Whether the runs of all pairs are equal; with ``part`` the second one may have more steps."""
    found = [difference for a, b in pairs if (difference := compare(a, b, part=part))]
    if not pairs:
        return Check(name, title, None, True, "not asked: that takes two runs")
    if not found:
        return Check(
            name, title, True, True, f"{_pairs(len(pairs))} equal to the last bit", (), len(pairs)
        )
    return Check(
        name, title, False, False, f"{len(found)} of {_pairs(len(pairs))} differ: {say(found[0])}",
        tuple(found[:_MOST]), len(pairs),
    )  # fmt: skip


def _pairs(n: int) -> str:
    return f"{n} pair{'s' * (n > 1)} of runs"


def say(found: Difference) -> str:
    """A difference in words."""
    if found.step is None:
        return f"{found.a} and {found.b} have no step in common"
    values = [
        "no loss" if value is None else repr(value) for value in (found.value_a, found.value_b)
    ]
    return (
        f"{found.a} and {found.b} part at step {found.step}: {values[0]} and {values[1]} "
        f"({found.differing} of {found.compared} steps differ)"
    )


def _control(unseeded: Sequence[Run], whole: Sequence[Run]) -> Check:
    """Whether runs without a seed differ, from one another and from those with one."""
    title = "runs without a seed differ"
    if not unseeded:
        return Check("control", title, None, False, "not asked")
    pairs = [*_against_first(unseeded), *zip(unseeded, whole, strict=False)]
    found = [compare(a, b) for a, b in pairs]
    equal = [pair for pair, difference in zip(pairs, found, strict=True) if difference is None]
    differences = tuple(one for one in found if one is not None)[:_MOST]
    if equal:
        a, b = equal[0]
        says = f"{len(equal)} of {_pairs(len(pairs))} equal: {a.name} and {b.name}"
        same = len(equal) == len(pairs)
        return Check("control", title, False, same, says, differences, len(pairs))
    says = f"{_pairs(len(pairs))} differ"
    return Check("control", title, True, False, says, differences, len(pairs))


def _against_first(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    return [(runs[0], run) for run in runs[1:]]


def _joined(
    halves: Sequence[Run], resumed: Sequence[Run], whole: Sequence[Run]
) -> list[tuple[Run, Run]]:
    """Each resumed run, with the half run before it, and the whole one of its number."""
    found = []
    for half, rest, run in zip(halves, resumed, whole, strict=True):
        after = set(rest.curve.steps)
        kept = [i for i, step in enumerate(half.curve.steps) if step not in after]
        curve = Curve(
            (*(half.curve.steps[i] for i in kept), *rest.curve.steps),
            np.concatenate([half.curve.values[kept], rest.curve.values]),
        )
        found.append((replace(rest, curve=curve), run))
    return found


def compare(a: Run, b: Run, *, part: bool = False) -> Difference | None:
    """The first step, in b's order, in which the losses of two runs differ; None for none.

    A step that one of them lacks differs too; with ``part``, ``a`` may lack some.
    """
    left = dict(zip(a.curve.steps, a.curve.values.tolist(), strict=True))
    right = dict(zip(b.curve.steps, b.curve.values.tolist(), strict=True))
    both = len(left.keys() & right.keys())
    if not both:
        return Difference(a.name, b.name, None, None, None, 0, 0)
    wrong = list(_differing(left, right, part))
    if not wrong:
        return None
    step = wrong[0]
    differing = sum(one in left and one in right for one in wrong)
    return Difference(a.name, b.name, step, left.get(step), right.get(step), differing, both)


def _differing(left: dict[str, float], right: dict[str, float], part: bool) -> Iterator[str]:
    for step, value in right.items():
        if step not in left:
            if not part:
                yield step
        elif not _equal(left[step], value):
            yield step
    for step in left:
        if step not in right:
            yield step


def _equal(a: float, b: float) -> bool:
    """The same bits; all NaN count as one, since text does not tell them apart."""
    return (a == b and np.signbit(a) == np.signbit(b)) or (a != a and b != b)


def _without_scipy(paired: Sequence[Paired]) -> Iterator[str]:
    if any(one.pairs > 1 and one.interval95 is None for one in paired):
        yield (
            "without SciPy there are no Student-t intervals and no F test, so no variance can be "
            'said to be reduced: pip install "fastseed[report]"'
        )


def _notes(runs: Sequence[Run]) -> Iterator[str]:
    digits = max(run.curve.digits for run in runs)
    if digits < _ENOUGH_DIGITS:
        yield (
            f"losses are written with {digits} significant digits at most: that they are equal "
            "says no more than these; write them with repr(), or as JSON"
        )
    if not all(np.isfinite(run.curve.values).all() for run in runs):
        yield "some losses are not finite: statistics of those steps are not either"
    if len({run.curve.steps for run in runs if run.experiment == "whole"}) > 1:
        yield "whole runs wrote other steps than one another"
    said: dict[str, str] = {}
    for run in runs:
        for note in run.curve.notes:
            said.setdefault(note, run.name)
    for note, name in said.items():
        yield f"{name}: {note}"
