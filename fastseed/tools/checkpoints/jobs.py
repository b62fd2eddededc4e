"""Count the steps of a job, print the samples of a step, and compare the samples of two jobs."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..._utils import JSON, validation
from ...data import Lineage
from ...data.history import MOST, Point, Span
from ...data.lineage import Visits, check_known


def locate(lineage: Lineage, number: int) -> Point:
    """Return the epoch and the step of a step that is counted from 0 over all epochs.

    Steps that are skipped count, as they keep their numbers.
    """
    function = "tools.checkpoints.locate"
    left = validation.check_int(function, "number", number, 0, 2**63 - 1)
    history = dataclasses.replace(lineage.history, skips=())
    for epochs in history.ranges_alike(range(2**32)):
        count = max((span.last for span in history.spans(epochs.start)), default=0)
        if left < count * len(epochs):
            return epochs.start + left // count, left % count
        left -= count * len(epochs)
    rule = f"a step of the job, which has {number - left} of them"
    raise validation.value_error(function, "number", rule, number)


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
    points = [one.history.point for one in (a, b)]
    epochs = max(1, *(epoch + (step > 0) for epoch, step in points))
    _check_effort("epochs", epochs)
    parts = [part for epoch in range(epochs) for part in _parts(a, b, epoch)]
    listed = [part for part in parts if not part.is_same]
    _check_effort("steps that may differ", sum(part.end - part.first for part in listed))
    first: Point | None = None
    differing = missing = 0
    for part in listed:
        sides = (a if part.a else None, b if part.b else None)
        for step in range(part.first, part.end):
            gone = _missing(*(one.at(part.epoch, step) if one else None for one in sides))
            if gone is not None:
                first = first or (part.epoch, step)
                differing, missing = differing + 1, missing + gone
    steps = sum(part.end - part.first for part in parts)
    samples = sum(part.samples for part in parts)
    why: list[str] = []
    if first is not None:
        mine, other = (_facts(one, *first) for one in (a, b))
        differ = [name for name, x in mine.items() if x != other.get(name, x)]
        why = [f"{name}: {mine[name]}, {other[name]}" for name in differ]
    pairs = [(f, getattr(a.history, f), getattr(b.history, f)) for f in ("master_seed", "task")]
    notes = tuple(f"{field}: {x}, {y}: keys of samples differ" for field, x, y in pairs if x != y)
    return JobComparison(epochs, steps, differing, first, tuple(why), samples, missing, notes)


class _Part(NamedTuple):
    """Steps ``first`` to ``end - 1`` of an epoch, which each job cuts in one way."""

    epoch: int
    first: int
    end: int
    a: Span | None  # None: the first job does not have these steps
    b: Span | None
    is_same: bool  # whether it is known without their orders that the samples are the same

    @property
    def samples(self) -> int:
        """How many samples the first job has in the steps."""
        if self.a is None:
            return 0
        return self.a.positions(self.end - 1)[1] - self.a.positions(self.first)[0]


def _parts(a: Lineage, b: Lineage, epoch: int) -> Iterator[_Part]:
    """Yield the parts of an epoch that one of the jobs has."""
    cuts = a.history.spans(epoch), b.history.spans(epoch)
    for span in itertools.chain(*cuts):
        check_known("tools.checkpoints.compare_jobs", f"the order of epoch {epoch}", span.spec)
    edges = {edge for spans in cuts for span in spans for edge in (span.first, span.last)}
    for first, end in itertools.pairwise(sorted(edges)):
        mine, other = (_span_at(spans, first) for spans in cuts)
        if mine or other:
            one, two = _cut(a, mine, first, end), _cut(b, other, first, end)
            yield _Part(epoch, first, end, mine, other, one is not None and one == two)


def _check_effort(things: str, count: int) -> None:
    if count > MOST:
        rule = f"jobs with at most {MOST} {things}"
        raise validation.value_error("tools.checkpoints.compare_jobs", "a and b", rule, count)


def _span_at(spans: list[Span], step: int) -> Span | None:
    return next((span for span in spans if span.first <= step < span.last), None)


def _cut(lineage: Lineage, span: Span | None, first: int, end: int) -> tuple[object, ...] | None:
    """Return what decides which samples some steps of an epoch have; None if it is not known."""
    if span is None or not span.spec.is_function:
        return None
    history = lineage.history
    ends = span.positions(first)[0], span.positions(end - 1)[1]
    removed = history.removed(span.quarantines).tolist()
    return ends, span.layout.step_size, span.spec, removed, history.master_seed, history.task


def _missing(a: Visits | None, b: Visits | None) -> int | None:
    """Return how many samples of one step the other has not; None if both have the same."""
    if a is None or b is None:
        return 0 if a is None else len(a)
    columns = (a.sample, b.sample), (a.occurrence, b.occurrence)
    if all(np.array_equal(x, y) for x, y in columns):
        return None
    mine, other = (
        Counter(zip(v.sample.tolist(), v.occurrence.tolist(), strict=True)) for v in (a, b)
    )
    return None if mine == other else (mine - other).total()


def _facts(lineage: Lineage, epoch: int, step: int) -> dict[str, str]:
    history = lineage.history
    span = _span_at(history.spans(epoch), step)
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
