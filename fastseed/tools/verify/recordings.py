"""Compare what :class:`fastseed.debug.Watch` recorded of the runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...debug.bisection import Bisection, bisect
from ...debug.watch_file import Recording
from .result import Check, Difference, Run

_PAIRS = 8  # of differing runs whose recordings are compared for a diagnosis


class FirstDifference(NamedTuple):
    """The first difference between the recordings of two runs."""

    a: str
    b: str
    found: Bisection
    generators: bool
    """True if both recorded the states of the generators."""


def check(runs: Sequence[Run], directory: Path) -> Check:
    """Check that seeded runs recorded equal tensors at each step that two of them recorded."""
    name, title = "tensors", "recorded tensors are identical"
    differences: list[Difference] = []
    pairs = steps = 0
    first = ""
    for a, b in _pairs(runs):
        found = _compare(directory / a.folder, directory / b.folder)
        if found is None:
            continue
        pairs += 1
        steps += found.compared
        if not found.equal:
            first = first or f"{a.name} and {b.name}: {found}"
            rest = (str(found.step), None, None, found.differing, found.compared)
            differences.append(Difference(a.name, b.name, *rest))
    count = f"{pairs} pair{'' if pairs == 1 else 's'} of runs"
    if not pairs:
        return Check(
            name, title, None, True, "not checked: no run recorded with fastseed.debug.Watch"
        )
    if not differences:
        return Check(name, title, True, True, f"{count} bit-identical in {steps} steps", (), pairs)
    message = f"{len(differences)} of {count} differ: {first}"
    return Check(name, title, False, False, message, tuple(differences), pairs)


def first_difference(check: Check, runs: Sequence[Run], directory: Path) -> FirstDifference | None:
    """Return the earliest difference between recordings of pairs that differ; None without any."""
    folders = {run.name: directory / run.folder for run in runs}
    best: FirstDifference | None = None
    for one in check.differences[:_PAIRS]:
        # The uninterrupted run first, as in "uninterrupted-0 and resumed-0".
        a, b = sorted((one.a, one.b), key=lambda name: not name.startswith("uninterrupted"))
        found = _compare(folders[a], folders[b])
        if found is None or found.step is None:
            continue
        if best is None or best.found.step is None or found.step < best.found.step:
            generators = _has_generators(folders[a]) and _has_generators(folders[b])
            best = FirstDifference(a, b, found, generators)
    return best


def _pairs(runs: Sequence[Run]) -> Iterator[tuple[Run, Run]]:
    uninterrupted = [run for run in runs if run.experiment == "uninterrupted"]
    for run in runs:
        if run.experiment == "uninterrupted" and run.number > 0:
            yield uninterrupted[0], run
        elif run.experiment in ("truncated", "resumed"):
            yield uninterrupted[run.number], run


def _compare(a: Path, b: Path) -> Bisection | None:
    """Return None if there are no recordings that can be compared."""
    left, right = _recordings(a), _recordings(b)
    if not left or not right:
        return None
    try:
        return bisect(left[0].parent, right[0].parent)
    except (ValueError, OSError):
        return None  # no common step, or cut off: only the losses count


def _recordings(folder: Path) -> list[Path]:
    """Return the files that :class:`fastseed.debug.Watch` wrote in a run's folder."""
    found = sorted(folder.rglob("rank-*.watch"))
    return [path for path in found if path.parent == found[0].parent]


def _has_generators(folder: Path) -> bool:
    return all("generator" in Recording(path).header["groups"] for path in _recordings(folder))
