"""Compare the output, the losses and the recordings of runs, to the last bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...debug.bisection import Bisection, bisect
from .losses import Curve, read_curve
from .processes import OUT
from .runs import Run

_SHOWN = 200  # characters of a line
_ENOUGH_DIGITS = 9  # identify every float32


@dataclass(frozen=True)
class Measured:
    """A run with what it printed and its losses, as they were when it ended.

    Attributes:
        run: the run.
        lines: the lines of its output.
        curve: its losses; None if they are not in a form that has steps.
    """

    run: Run
    lines: list[str]
    curve: Curve | None


def measure(run: Run, log: str | None, value: str, step: str | None) -> Measured:
    """Read the output of a run, and its losses: from ``log`` below ``{run}``, else the output."""
    path = run.folder / OUT
    if log is not None:
        exact = run.place / log
        found = [exact] if exact.exists() else sorted(run.place.glob(log))
        if len(found) != 1 or not found[0].is_file():
            if run.killed and not found:  # it had not begun its log
                return Measured(run, run.lines(), Curve({}))
            files = ", ".join(sorted(one.name for one in run.place.iterdir())[:20])
            raise ValueError(
                f"fastseed.verify: log must be one file below {{run}}, got {log!r}, which matches "
                f"{len(found)} paths in {run.name}, with the files {files or '(none)'}"
            )
        path = found[0]
    curve = read_curve(path, value=value, step=step)
    return Measured(run, run.lines(), curve if curve.values or log is not None else None)


# ---------------------------------------------------------------- pairs of runs


def compare_whole(a: Measured, b: Measured) -> tuple[str | None, Bisection | None]:
    """Return the first difference of two whole runs in a sentence, and that of recordings."""
    if a.curve is not None or b.curve is not None:
        text = compare_curves(a.run.name, _values(a), b.run.name, _values(b))
    else:
        text = _compare_lines(a, b)
    return _with_recordings(text, a, b)


def compare_stopped(a: Measured, whole: Measured) -> tuple[str | None, Bisection | None]:
    """Compare a run that stopped in the middle with a whole one, up to there."""
    text = None
    if whole.curve is not None:
        if _values(a):
            names = a.run.name, whole.run.name
            text = compare_curves(names[0], _values(a), names[1], _values(whole), prefix=True)
    elif a.run.killed:
        count = _common(a.lines, whole.lines)
        if count < len(a.lines):
            text = _line_differs(a, whole, count)
    return _with_recordings(text, whole, a)


def compare_resumed(
    stopped: Measured, rest: Measured, whole: Measured
) -> tuple[str | None, Bisection | None]:
    """Compare a run that stopped, and the one that continued it, with a whole one.

    Of printed lines, each line of the whole run must be at the beginning of the first or at the end
    of the second; the second may print others before, such as the step at which it resumes.
    """
    name = f"{stopped.run.name} with {rest.run.name}"
    if whole.curve is not None:
        values = _values(rest)
        before = {step: one for step, one in _values(stopped).items() if step not in values}
        text = compare_curves(name, {**before, **values}, whole.run.name, _values(whole))
    else:
        text = None
        begin = _common(stopped.lines, whole.lines)
        end = _common(rest.lines[::-1], whole.lines[::-1])
        between = range(begin, len(whole.lines) - end)
        if between:
            held = set(rest.lines)
            at = next((i for i in between if whole.lines[i] not in held), between[-1])
            line = whole.lines[at][:_SHOWN]
            text = f"line {at + 1} of {whole.run.name} is not in {name}: {line!r}"
    return _with_recordings(text, whole, rest)


def _values(one: Measured) -> dict[str, float]:
    return {} if one.curve is None else one.curve.values


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the number of equal elements at the beginning."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return sum(1 for _ in pairs)


def _compare_lines(a: Measured, b: Measured) -> str | None:
    count = _common(a.lines, b.lines)
    return None if count == len(a.lines) == len(b.lines) else _line_differs(a, b, count)


def _line_differs(a: Measured, b: Measured, count: int) -> str:
    shown = [
        repr(one.lines[count][:_SHOWN]) if count < len(one.lines) else "the output has ended"
        for one in (a, b)
    ]
    return f"line {count + 1} of {a.run.name} and {b.run.name}: {shown[0]} and {shown[1]}"


def compare_curves(
    a_name: str, a: dict[str, float], b_name: str, b: dict[str, float], *, prefix: bool = False
) -> str | None:
    """Return the first difference, in the order of ``b``, as a sentence; None if they are equal.

    A step that one run lacks is a difference; with ``prefix``, ``a`` may lack some.
    """
    common = [step for step in b if step in a]
    if not common:
        return f"{a_name} and {b_name} have no step in common"
    wrong = {step for step in common if not _equal(a[step], b[step])}
    suspects = wrong if prefix else wrong | (b.keys() - a.keys())
    for step in (*(one for one in b if one in suspects), *(one for one in a if one not in b)):
        values = (repr(one[step]) if step in one else "no loss" for one in (a, b))
        return (
            f"first difference between {a_name} and {b_name} at step {step}: "
            f"{' and '.join(values)} ({len(wrong)} of {len(common)} steps differ)"
        )
    return None


def _equal(a: float, b: float) -> bool:
    """Return whether the bits are equal; all NaN are, since their text is the same."""
    return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)


def _with_recordings(
    text: str | None, a: Measured, b: Measured
) -> tuple[str | None, Bisection | None]:
    """Add the difference of recordings; without a common step there is nothing to compare."""
    first, second = a.run.recording, b.run.recording
    if first is None or second is None:
        only = a if second is None else b
        recorded = first is not second and not b.run.killed
        return text or (f"only {only.run.name} recorded" if recorded else None), None
    found = _bisect(first, second)
    if found is None or found.equal:
        return text, None
    return text or f"{a.run.name} and {b.run.name}: {found}", found


def _bisect(a: Path, b: Path) -> Bisection | None:
    try:
        return bisect(a, b)
    except ValueError:  # no common step, or a run that was killed before its header was there
        return None


# ---------------------------------------------------------------- notes


def notes_about(measured: Sequence[Measured]) -> Iterator[str]:
    """Yield remarks about the logs."""
    digits = max((one.curve.digits for one in measured if one.curve is not None), default=17)
    if digits < _ENOUGH_DIGITS:
        yield (
            f"losses have at most {digits} significant digits, so only these are compared; write "
            "them with repr() or as JSON"
        )
    first: dict[str, str] = {}
    for one in measured:
        if one.curve is not None and one.run.experiment in ("whole", "other"):
            for note in one.curve.notes:
                first.setdefault(note, one.run.name)
    yield from (f"{name}: {note}" for note, name in first.items())
