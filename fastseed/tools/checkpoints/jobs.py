"""Count the steps of a job, print the samples of a step, and compare the samples of two jobs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..._utils import JSON, validation
from ...data import Lineage
from ...data.history import Point, Span, check_known
from ...data.lineage import Visits

_MOST_STEPS = 2**22  # of a job that is compared


def locate(lineage: Lineage, number: int) -> Point:
    """Return the epoch and the step of a step that is counted from 0 over all epochs.

    Steps that are skipped count, as they keep their numbers.
    """
    function = "tools.checkpoints.locate"
    left = validation.check_int(function, "number", number, 0, 2**63 - 1)
    for epochs, count in _counts(lineage, 2**32):
        if left < count * len(epochs):
            return epochs.start + left // count, left % count
        left -= count * len(epochs)
    rule = f"a step of the job, which has {number - left} of them"
    raise validation.value_error(function, "number", rule, number)


def _counts(lineage: Lineage, epochs: int) -> Iterator[tuple[range, int]]:
    """Yield ranges of epochs with the number of steps that each has, with those skipped."""
    history = dataclasses.replace(lineage.history, skips=())
    for alike in history.ranges_alike(range(epochs)):
        yield alike, max((span.last for span in history.spans(alike.start)), default=0)


def rows_of(lineage: Lineage, visits: Visits) -> list[dict[str, JSON]]:
    """Return visits as rows for printing, with ``key``, the 128 bits of their random numbers.

    ``source`` and ``index`` are None if the orders of the job are not all mixtures.
    """
    is_mixed = all(spec.sources for spec in lineage.history.orders)
    rows = []
    for visit, (low, high) in zip(visits, lineage.keys(visits).tolist(), strict=True):
        row: dict[str, JSON] = {name: visit[name].item() for name in visits.dtype.names or ()}
        if not is_mixed:
            row |= {"source": None, "index": None}
        rows.append({**row, "key": f"{high << 64 | low:032x}"})
    return rows


class JobComparison(NamedTuple):
    """Which steps of two jobs have other samples. It is true if none has.

    The samples of a step are those of all ranks, with their occurrences; on which rank and in which
    row a sample is does not count.
    """

    epochs: int  # how many were compared, from epoch 0 on
    steps: int  # how many at least one of the jobs has in them
    differing: int  # how many of these have other samples, or only one of the jobs has
    first: Point | None  # the first one that differs
    why: tuple[str, ...]  # the differences of the journals at that step
    samples: int  # how many the steps of the first job have
    missing: int  # how many of these the same step of the second job does not have
    notes: tuple[str, ...]  # other master seeds or tasks: random numbers of samples differ

    def __bool__(self) -> bool:
        return not self.differing


def compare_jobs(a: Lineage, b: Lineage) -> JobComparison:
    """Compare the samples of two jobs in the epochs that one of them has begun, step by step."""
    for one in (a, b):
        for spec in one.history.orders:
            check_known("tools.checkpoints.compare_jobs", "the order of a job", spec)
    points = [one.history.point for one in (a, b)]
    epochs = max(1, *(epoch + (step > 0) for epoch, step in points))
    most = max(sum(n * len(alike) for alike, n in _counts(one, epochs)) for one in (a, b))
    if most > _MOST_STEPS:
        rule = f"jobs with at most {_MOST_STEPS} steps"
        raise validation.value_error("tools.checkpoints.compare_jobs", "a and b", rule, most)
    first: Point | None = None
    steps = differing = samples = missing = 0
    for point, mine, other in _steps(a, b, epochs):
        steps += 1
        size = len(range(*mine.positions(point[1]))) if mine else 0
        samples += size
        if mine is None or other is None:
            gone: int | None = size
        elif (cut := _cut(a, mine, point[1])) is not None and cut == _cut(b, other, point[1]):
            continue
        else:
            gone = _missing(a.at(*point), b.at(*point))
        if gone is not None:
            first = first or point
            differing, missing = differing + 1, missing + gone
    why: list[str] = []
    if first is not None:
        facts, others = (_facts(one, *first) for one in (a, b))
        differ = [name for name, x in facts.items() if x != others.get(name, x)]
        why = [f"{name}: {facts[name]}, {others[name]}" for name in differ]
    pairs = [(f, getattr(a.history, f), getattr(b.history, f)) for f in ("master_seed", "task")]
    notes = tuple(f"{field}: {x}, {y}: keys of samples differ" for field, x, y in pairs if x != y)
    return JobComparison(epochs, steps, differing, first, tuple(why), samples, missing, notes)


def _steps(a: Lineage, b: Lineage, epochs: int) -> Iterator[tuple[Point, Span | None, Span | None]]:
    """Yield the steps that one of the jobs has, with the span of each."""
    for epoch in range(epochs):
        mine, other = (
            {
                step: span
                for span in one.history.spans(epoch)
                for step in range(span.first, span.last)
            }
            for one in (a, b)
        )
        for step in sorted(mine.keys() | other.keys()):
            yield (epoch, step), mine.get(step), other.get(step)


def _cut(lineage: Lineage, span: Span, step: int) -> tuple[object, ...] | None:
    """Return what decides which samples a step has; None if it is not known without its order."""
    if not span.spec.is_function:
        return None
    history = lineage.history
    removed = history.quarantines[: span.quarantines]
    return span.positions(step), span.spec, removed, history.master_seed, history.task


def _missing(a: Visits, b: Visits) -> int | None:
    """Return how many samples of one step the other has not; None if both have the same."""
    columns = (a.sample, b.sample), (a.occurrence, b.occurrence)
    if all(np.array_equal(x, y) for x, y in columns):
        return None
    mine, other = (
        Counter(zip(v.sample.tolist(), v.occurrence.tolist(), strict=True)) for v in (a, b)
    )
    return None if mine == other else (mine - other).total()


def _facts(lineage: Lineage, epoch: int, step: int) -> dict[str, str]:
    history = lineage.history
    span = next((one for one in history.spans(epoch) if one.first <= step < one.last), None)
    if span is None:
        is_skipped = history.first_kept(epoch, step) != step
        return {"step": "skipped" if is_skipped else "after the end of the epoch"}
    entry, spec = span.entry, span.spec
    parts = f"{entry.slots} slots" if entry.slots else f"{entry.ranks} rank(s)"
    return {
        "step": "exists",
        "master seed": str(history.master_seed),
        "task": str(history.task),
        "order": f"{spec.kind} {spec.name!r} of {spec.n} samples",
        "weights": ", ".join(f"{s.name} {s.share / 2**32:.4g}" for s in spec.sources) or "none",
        "batch": f"{entry.batch_size} on {parts}",
        "position": str(span.positions(step)[0]),
        "quarantine": f"{len(history.removed(span.quarantines))} sample(s)",
    }
