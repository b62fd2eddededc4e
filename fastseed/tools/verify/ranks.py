"""Compare what runs with several numbers of ranks record, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...debug.tree_digest import Leaf, whole
from ...debug.watch_file import Recording
from .runs import Run

Table = dict[tuple[str, str], Leaf]  # by group and name

_GROUPS = ("buffer", "gradient", "optimizer", "parameter")  # generators may differ between ranks
_WEIGHTS = ("buffer", "parameter")


class RankRun(NamedTuple):
    """The run with one number of ranks."""

    ranks: int
    steps: int  # that were recorded, without the state before the first
    digest: str  # of parameters and buffers after the last step, as debug.digest(model) has it
    difference: str | None  # the first one from the first run, or between ranks of this run


def compare_ranks(runs: Sequence[Run]) -> tuple[list[RankRun], list[str]]:
    """Compare runs, whose numbers are their numbers of ranks, with the first; and notes."""
    counts = [run.number for run in runs]
    recorded = [_recordings(run) for run in runs]
    pairs = zip(counts, recorded, strict=True)
    found = [_compare(counts[0], recorded[0], *other) for other in pairs]
    return found, [*_notes(counts, recorded)]


def _recordings(run: Run) -> list[Recording]:
    """Return the recordings of a run by rank."""
    if run.recording is None:
        rule = "a script that records with fastseed.debug.Watch(model, optimizer).attach()"
        got = f"no recording in FASTSEED_RUN_DIR with {_ranks(run.number)}"
        raise ValueError(f"fastseed.verify: command must be {rule}, got {got}")
    found = [Recording(file) for file in Path(run.recording).glob("rank-*.watch")]
    return sorted(found, key=lambda one: int(one.header["rank"]))


def _compare(
    first_count: int, first: list[Recording], count: int, other: list[Recording]
) -> RankRun:
    steps = sorted({step for one in other for step in one.steps})
    last, _ = _merged(other, steps[-1])
    weights = {name: leaf for (group, name), leaf in last.items() if group in _WEIGHTS}
    difference = next(_differences(first_count, first, count, other), None)
    trained = sum(not one.values(step).start for one in other[:1] for step in one.steps)
    return RankRun(count, trained, f"{whole(weights):032x}", difference)


def _differences(
    first_count: int, first: list[Recording], count: int, other: list[Recording]
) -> Iterator[str]:
    """Yield differences, step by step, in the order in which a training step makes them."""
    names = f"with {_ranks(first_count)}", f"with {_ranks(count)}"
    every = [{step for one in run for step in one.steps} for run in (first, other)]
    for step in sorted(every[0] | every[1]):
        for name, steps in zip(names, every, strict=True):
            if step not in steps:
                yield f"step {step}: not recorded {name}"
        left, _ = _merged(first, step)
        right, conflict = _merged(other, step)
        start = any(one.values(step).start for one in other if step in one.steps)
        where = "before the first step" if start else f"step {step}"
        if conflict is not None:
            yield f"{where}: {conflict}"
        for group, key in sorted(left | right, key=lambda pair: _GROUPS.index(pair[0])):
            one, two = left.get((group, key)), right.get((group, key))
            if one != two:
                found = f"{one or 'absent'} {names[0]}, {two or 'absent'} {names[1]}"
                yield f"{where}, {group} {key}: {found}"


def _merged(run: list[Recording], step: int) -> tuple[Table, str | None]:
    """Return the digests of all ranks at a step, and the first name on which ranks differ."""
    found: Table = {}
    conflict = None
    for one in run:
        values = one.values(step).by_name() if step in one.steps else {}
        for (group, name), leaf in values.items():
            if group not in _GROUPS:
                continue
            if found.setdefault((group, name), leaf) != leaf and conflict is None:
                rank = one.header["rank"]
                conflict = f"{group} {name} differs between ranks of one run, first on rank {rank}"
    return found, conflict


def _notes(counts: Sequence[int], recorded: Sequence[list[Recording]]) -> Iterator[str]:
    """Yield settings of arithmetic in which runs differ."""
    for name in ("threads", "torch"):
        found = [sorted({str(one.header.get(name)) for one in run}) for run in recorded]
        if any(values != found[0] for values in found):
            listed = (
                f"{', '.join(v)} with {_ranks(n)}" for v, n in zip(found, counts, strict=True)
            )
            yield f"{name} differ: {'; '.join(listed)}"


def _ranks(count: int) -> str:
    return f"{count} rank{'s' * (count != 1)}"
