"""Compare the losses and the recordings of all runs, and reach a verdict."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ...debug.bisection import Bisection, bisect
from .options import EXPERIMENTS
from .result import DIFFERENT, IDENTICAL, INCONCLUSIVE, Check, Curve, Run

_ENOUGH_DIGITS = 9  # identify every float32


def check_all(runs: Sequence[Run], recorded: Sequence[Recorded]) -> tuple[Check, ...]:
    """Compare all runs bit by bit."""
    whole, truncated, resumed, unseeded = (
        [run for run in runs if run.experiment == name] for name in EXPERIMENTS
    )
    joined = [
        replace(rest, curve=_join(start.curve, rest.curve))
        for start, rest in zip(truncated, resumed, strict=True)
    ]
    repeats = [compare(a, b) for a, b in _with_first(whole)]
    starts = [compare(a, b, prefix=True) for a, b in zip(truncated, whole, strict=True)]
    resumptions = [compare(a, b) for a, b in zip(joined, whole, strict=True)]
    others = [*_with_first(unseeded), *zip(unseeded, whole, strict=False)]
    unchanged = [None if compare(a, b) else f"{a.name} and {b.name}" for a, b in others]
    tensors = [None if one.found.equal else str(one) for one in recorded]
    unrecorded = "no run recorded with fastseed.debug.Watch"
    return (
        _check("repeat", "runs with the same seed are identical", repeats, "it needs two runs"),
        _check("truncate", "a truncated run matches the uninterrupted run", starts),
        _check("resume", "a resumed run matches the uninterrupted run", resumptions),
        _check(
            "baseline",
            "runs of the unseeded baseline differ",
            unchanged,
            "it was left out",
            ("differ", "identical"),
        ),
        _check("tensors", "recorded tensors are identical", tensors, unrecorded),
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


def _check(
    name: str,
    title: str,
    found: Sequence[str | None],
    missing: str = "",
    words: tuple[str, str] = ("bit-identical", "differ"),
) -> Check:
    """Check that no pair of runs is wrong, and say so in ``words``.

    Args:
        name, title: of the check.
        found: for each pair of runs what is wrong, or None.
        missing: why there may be no pairs.
        words: for pairs that are right, and that are wrong.
    """
    if not found:
        return Check(name, title, None, f"not checked: {missing}")
    right, bad = words
    wrong = [one for one in found if one is not None]
    pairs = f"{len(found)} pair{'s' * (len(found) != 1)} of runs"
    message = f"{len(wrong)} of {pairs} {bad}: {wrong[0]}" if wrong else f"{pairs} {right}"
    return Check(name, title, not wrong, message)


def _with_first(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    return [(runs[0], run) for run in runs[1:]]


# ---------------------------------------------------------------- losses


def _join(start: Curve, rest: Curve) -> Curve:
    """Return a truncated and a resumed curve as one; of a common step the resumed value."""
    kept = {step: one for step, one in start.values.items() if step not in rest.values}
    return Curve({**kept, **rest.values})


def compare(a: Run, b: Run, *, prefix: bool = False) -> str | None:
    """Return the first difference, in the order of ``b``, as a sentence; None if they are equal.

    A step that one run lacks is a difference; with ``prefix``, ``a`` may lack some.
    """
    left, right = a.curve.values, b.curve.values
    common = [step for step in right if step in left]
    if not common:
        return f"{a.name} and {b.name} have no step in common"
    wrong = {step for step in common if not _equal(left[step], right[step])}
    suspects = wrong if prefix else wrong | (right.keys() - left.keys())
    ordered = chain(
        (step for step in right if step in suspects), (step for step in left if step not in right)
    )
    for step in ordered:
        values = (repr(one[step]) if step in one else "no loss" for one in (left, right))
        return (
            f"first difference between {a.name} and {b.name} at step {step}: "
            f"{' and '.join(values)} ({len(wrong)} of {len(common)} steps differ)"
        )
    return None


def _equal(a: float, b: float) -> bool:
    """Return whether the bits are equal; all NaN are, since their text is the same."""
    return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)


# ---------------------------------------------------------------- recordings


class Recorded(NamedTuple):
    """The comparison of what two runs recorded."""

    a: str
    b: str
    found: Bisection

    def __str__(self) -> str:
        return f"{self.a} and {self.b}: {self.found}"


def recording(folder: str | Path) -> Path | None:
    """Return the folder below that of a run in which ``fastseed.debug.Watch`` recorded, or None."""
    return next((file.parent for file in sorted(Path(folder).rglob("rank-*.watch"))), None)


def compare_recordings(runs: Sequence[Run]) -> list[Recorded]:
    """Compare seeded runs that recorded; those without a common step are left out."""
    uninterrupted = [run for run in runs if run.experiment == "uninterrupted"]
    pairs = _with_first(uninterrupted)
    for name in ("truncated", "resumed"):
        pairs += [(uninterrupted[run.number], run) for run in runs if run.experiment == name]
    folders = {run.name: recording(run.folder) for run in runs}
    compared = []
    for a, b in pairs:
        first, second = folders[a.name], folders[b.name]
        with contextlib.suppress(ValueError, OSError):  # no common step, or cut off
            if first and second:
                compared.append(Recorded(a.name, b.name, bisect(first, second)))
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
    first: dict[str, str] = {}
    for run in runs:
        for note in run.curve.notes:
            first.setdefault(note, run.name)
    yield from (f"{name}: {note}" for note, name in first.items())
