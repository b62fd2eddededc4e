"""What :class:`fastseed.debug.Watch` recorded of runs, compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...debug.bisection import Bisection, bisect
from ...debug.watch_file import Recording
from .result import Check, Difference, Run

_PAIRS = 8  # of differing runs whose recordings are compared


class Parted(NamedTuple):
    """Where the recordings of two runs part."""

    a: str
    b: str
    found: Bisection
    generators: bool
    """Whether both recorded the states of the generators."""


def check(runs: Sequence[Run], directory: Path) -> Check:
    """Whether the tensors of all runs with a seed are equal in each step that two recorded."""
    title = "recorded tensors are equal"
    found, compared, n = [], 0, 0
    for a, b in _pairs(runs):
        parted = _compare(*_watches(a, b, directory))
        if parted is None:
            continue
        n += 1
        compared += parted.compared
        if not parted.equal:
            rest = (str(parted.step), None, None, parted.differing, parted.compared)
            found.append((Difference(a.name, b.name, *rest), parted))
    if not n:
        return Check("tensors", title, None, True, "not asked: no run has a fastseed.Watch")
    if not found:
        return Check(
            "tensors", title, True, True,
            f"{n} pair{'s' * (n > 1)} of runs equal to the last bit in {compared} steps", (), n,
        )  # fmt: skip
    one, where = found[0]
    return Check(
        "tensors", title, False, False,
        f"{len(found)} of {n} pairs of runs differ: {one.a} and {one.b}: {where}",
        tuple(difference for difference, _ in found), n,
    )  # fmt: skip


def _pairs(runs: Sequence[Run]) -> Iterator[tuple[Run, Run]]:
    whole = [run for run in runs if run.experiment == "whole"]
    for run in runs:
        if run.experiment == "whole" and run.number > 0:
            yield whole[0], run
        elif run.experiment in ("half", "resumed"):
            yield whole[run.number], run


def _watches(a: Run, b: Run, directory: Path) -> tuple[Path | None, Path | None]:
    return _watch(directory / a.folder), _watch(directory / b.folder)


def _compare(left: Path | None, right: Path | None) -> Bisection | None:
    """None without recordings that can be compared."""
    if left is None or right is None:
        return None
    try:
        return bisect(left, right)
    except (ValueError, OSError):
        return None  # no step in common, or cut off: the losses have to do


def first_parting(check: Check, runs: Sequence[Run], directory: Path) -> Parted | None:
    """Of the pairs that differ, the one whose recordings part first; None without recordings."""
    named = {run.name: run for run in runs}
    best: tuple[int, str, str, Bisection] | None = None
    for one in check.differences[:_PAIRS]:
        # The whole run first, so that the sentence reads "whole-0 and resumed-0".
        a, b = sorted((one.a, one.b), key=lambda name: not name.startswith("whole"))
        found = _compare(*_watches(named[a], named[b], directory))
        if found is None or found.step is None:
            continue
        if best is None or found.step < best[0]:
            best = found.step, a, b, found
    if best is None:
        return None
    _, a, b, found = best
    both = _watches(named[a], named[b], directory)
    return Parted(a, b, found, all(_has_generators(one) for one in both if one is not None))


def _watch(folder: Path) -> Path | None:
    """The folder of a run that holds what :class:`fastseed.debug.Watch` wrote."""
    found = sorted(folder.rglob("rank-*.watch"))
    return found[0].parent if found else None


def _has_generators(folder: Path) -> bool:
    return all(
        "generator" in Recording(path).header["groups"] for path in folder.glob("rank-*.watch")
    )
