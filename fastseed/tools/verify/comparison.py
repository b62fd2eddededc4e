"""Compare the output, the losses and the recordings of runs, to the last bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from ...debug.bisection import Bisection, bisect
from .runs import OTHER, WHOLE, Run

_SHOWN = 200  # characters of a line
_FEW_DIGITS = 8  # one more identifies every float32
_NAMES = 4  # in a list


def compare_whole(a: Run, b: Run) -> str | None:
    """Return the first difference of two whole runs in a sentence; None if they are equal."""
    if a.losses.values or b.losses.values:
        text = _compare_losses(a.name, a.losses.values, b)
    else:
        count = _common(a.lines, b.lines)
        is_same = count == len(a.lines) == len(b.lines)
        text = None if is_same else _line_differs(a, b, count)
    return _with_recordings(text, a, b)


def compare_stopped(a: Run, whole: Run) -> str | None:
    """Compare a run that stopped in the middle with a whole one, up to there."""
    text = None
    if whole.losses.values:
        common = {step: v for step, v in whole.losses.values.items() if step in a.losses.values}
        if a.losses.values:
            text = _compare_losses(a.name, a.losses.values, whole, common)
    elif a.killed:
        count = _common(a.lines, whole.lines)
        if count < len(a.lines):
            text = _line_differs(a, whole, count)
    return _with_recordings(text, whole, a)


def compare_resumed(stopped: Run, rest: Run, whole: Run) -> str | None:
    """Compare a run that stopped, and the one that continued it, with a whole one."""
    name = f"{stopped.name} with {rest.name}"
    text = None
    if whole.losses.values:
        again = rest.losses.values
        before = {step: one for step, one in stopped.losses.values.items() if step not in again}
        text = _compare_losses(name, {**before, **again}, whole)
    else:  # the second may print others at its beginning, such as the step at which it resumes
        begin = _common(stopped.lines, whole.lines)
        end = _common(rest.lines[::-1], whole.lines[::-1])
        between = range(begin, len(whole.lines) - end)
        if between:
            held = set(rest.lines)
            at = next((i for i in between if whole.lines[i] not in held), between[-1])
            line = whole.lines[at][:_SHOWN]
            text = f"line {at + 1} of {whole.name} is not in {name}: {line!r}"
    return _with_recordings(text, whole, rest)


# ---------------------------------------------------------------- lines and losses


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the number of equal elements at the beginning."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return sum(1 for _ in pairs)


def _line_differs(a: Run, b: Run, count: int) -> str:
    shown = [
        repr(one.lines[count][:_SHOWN]) if count < len(one.lines) else "the output has ended"
        for one in (a, b)
    ]
    return f"line {count + 1} of {a.name} and {b.name}: {shown[0]} and {shown[1]}"


def _compare_losses(
    name: str, a: dict[str, float], run: Run, expected: dict[str, float] | None = None
) -> str | None:
    """Return the first difference from the losses of a run, or from ``expected`` ones of it."""
    b = run.losses.values if expected is None else expected
    wrong = [step for step in {**b, **a} if not _equal(a.get(step), b.get(step))]
    if not wrong:
        return None
    values = [repr(one[wrong[0]]) if wrong[0] in one else "no loss" for one in (a, b)]
    return (
        f"first difference between {name} and {run.name} at step {wrong[0]}: "
        f"{' and '.join(values)} ({len(wrong)} of {len({**a, **b})} steps differ)"
    )


def _equal(a: float | None, b: float | None) -> bool:
    """Return whether the bits are equal; all NaN are, since their text is the same."""
    if a is None or b is None:
        return False
    return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)


# ---------------------------------------------------------------- recordings


def _with_recordings(text: str | None, a: Run, b: Run) -> str | None:
    """Add the difference of recordings."""
    if (a.recording is None) != (b.recording is None):
        only = a if b.recording is None else b
        return text or (None if b.killed else f"only {only.name} recorded")
    found = _bisect(a, b)
    if found is None or found.equal:
        return text
    return f"{f'{text}; ' if text else ''}recordings of {a.name} and {b.name}: {found}"


def _bisect(a: Run, b: Run) -> Bisection | None:
    """Return the difference of recordings; None if they have no common step."""
    if a.recording is None or b.recording is None:
        return None
    try:
        return bisect(a.recording, b.recording)
    except ValueError:  # also of a run that was killed before its header was written
        return None


# ---------------------------------------------------------------- notes


def notes_about(runs: Sequence[Run], failed: bool) -> Iterator[str]:
    """Yield remarks about the logs, and about files that runs share."""
    values = [value for run in runs for value in run.losses.values.values()]
    if values and all(float(f"{v:.{_FEW_DIGITS}g}") == v or v != v for v in values):
        yield (
            f"losses have at most {_FEW_DIGITS} significant digits, so only these are compared; "
            "write them with repr() or as JSON"
        )
    whole = [run for run in runs if run.experiment in (WHOLE, OTHER)]  # others repeat steps
    left_out = max((run.losses.left_out for run in whole), default=0)
    if left_out and values:
        yield f"up to {left_out} lines of a log are broken, have no step or repeat one"
    names = sorted({name for run in runs for name in run.written})
    if failed and names and not any(str(run.place) in " ".join(run.command) for run in runs):
        shown = ", ".join(names[:_NAMES]) + ", ..." * (len(names) > _NAMES)
        yield (
            f"the runs share the working folder, in which they wrote {shown}: a run may continue "
            "an earlier one's checkpoint; give the program {run}, an empty folder for each run"
        )
