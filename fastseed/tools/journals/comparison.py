"""Compare two jobs: which steps have other samples, how many, and why the first one has."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..._utils import validation
from ...data import Lineage
from ...data.history import Span
from ...data.lineage import Visits
from ...data.order.spec import OrderSpec

Point = tuple[int, int]


class Comparison(NamedTuple):
    """Which steps of two jobs have other samples. It is true if none has.

    The samples of a step are those of all ranks, with their occurrences; on which rank and in which
    row a sample is does not count.
    """

    epochs: int
    """How many epochs were compared, from epoch 0 on."""
    steps: int
    """How many steps at least one of the jobs has in them."""
    differing: int
    """How many of them have other samples, or only one of the jobs has."""
    first: Point | None
    """The first one, as (epoch, step)."""
    why: tuple[str, ...]
    """The differences of the journals at that step."""
    samples: int
    """How many samples the steps of the first job have."""
    missing: int
    """How many of those the same step of the second job does not have."""
    notes: tuple[str, ...]
    """Other master seeds or tasks, with which the random numbers of samples differ."""

    def __bool__(self) -> bool:
        return not self.differing


def diff(a: Lineage, b: Lineage, *, epochs: int | None = None) -> Comparison:
    """Compare the samples of two jobs, step by step.

    Steps to come are compared as they come if the jobs continue as they are.

    Args:
        a: the first job.
        b: the other one.
        epochs: how many epochs to compare, [1, 2**32]; None: those that one of the jobs has begun.

    Raises:
        TypeError, ValueError: an argument has the wrong type or is out of range; or an order is not
            a function of the epoch.
        RuntimeError: there are not enough spare positions for the samples in quarantine.

    Examples:
        >>> import fastseed, torch
        >>> from fastseed.tools import journals
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> jobs = [fastseed.data.steps(batches, epochs=2) for _ in range(2)]
        >>> jobs[1].quarantine(3)
        >>> found = journals.diff(*(job.lineage() for job in jobs))
        >>> found.first, found.why, found.differing, found.steps, found.missing, found.samples
        ((0, 1), ('quarantine: 0 sample(s), 1 sample(s)',), 1, 3, 1, 10)
    """
    function = "tools.historys.diff"
    for name, one in (("a", a), ("b", b)):
        validation.check_instance(function, name, one, Lineage, "a Lineage")
    if epochs is None:
        points = [one.history.point for one in (a, b)]
        epochs = max(1, *(epoch + (step > 0) for epoch, step in points))
    epochs = validation.check_int(function, "epochs", epochs, 1, 2**32)
    first: Point | None = None
    steps = differing = samples = missing = 0
    for epoch in range(epochs):
        for step, count, size, gone in _epoch(a, b, epoch):
            steps, samples = steps + count, samples + size
            if gone is not None:
                first = first or (epoch, step)
                differing, missing = differing + count, missing + gone
    why = () if first is None else tuple(_reasons(a, b, *first))
    pairs = [(f, getattr(a.history, f), getattr(b.history, f)) for f in ("master_seed", "task")]
    notes = tuple(f"{field}: {x}, {y}: keys of samples differ" for field, x, y in pairs if x != y)
    return Comparison(epochs, steps, differing, first, why, samples, missing, notes)


def _epoch(a: Lineage, b: Lineage, epoch: int) -> Iterator[tuple[int, int, int, int | None]]:
    """Yield (step, number of steps, samples of a, those that b misses) for parts of an epoch.

    In place of the last one is None for steps that have the same samples.
    """
    cuts = a.history.spans(epoch), b.history.spans(epoch)
    edges = sorted({edge for spans in cuts for span in spans for edge in (span.first, span.last)})
    for first, end in itertools.pairwise(edges):
        mine, other = (_span_at(spans, first) for spans in cuts)
        if mine is None and other is None:
            continue
        if mine is not None and other is not None:
            layout = _layout(a, mine, first, end)
            if layout is not None and layout == _layout(b, other, first, end):
                yield first, end - first, layout.end - layout.start, None
                continue
        for step in range(first, end):
            visits = a.at(epoch, step) if mine else None, b.at(epoch, step) if other else None
            yield step, 1, 0 if visits[0] is None else len(visits[0]), _missing(*visits)


def _span_at(spans: list[Span], step: int) -> Span | None:
    return next((span for span in spans if span.first <= step < span.last), None)


class _Layout(NamedTuple):
    """The reasons for the samples of some steps of an epoch, besides the epoch."""

    start: int  # the first position
    end: int
    step_size: int
    spec: OrderSpec
    removed: tuple[int, ...]
    seeds: tuple[int, int]


def _layout(lineage: Lineage, span: Span, first: int, end: int) -> _Layout | None:
    """Return the layout of steps ``first`` to ``end - 1``; None if their order is not known."""
    journal = lineage.history
    if not span.spec.is_function:
        return None
    spec = span.spec
    ends = span.positions(first)[0], span.positions(end - 1)[1]
    gone = tuple(journal.removed(span.quarantines).tolist())
    return _Layout(*ends, span.layout.step_size, spec, gone, (journal.master_seed, journal.task))


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


def _reasons(a: Lineage, b: Lineage, epoch: int, step: int) -> Iterator[str]:
    """Yield what differs between the journals at a step."""
    sides = [_facts(one, epoch, step) for one in (a, b)]
    for name, x in sides[0].items():
        y = sides[1].get(name, x)
        if x != y:
            yield f"{name}: {x}, {y}"


def _facts(lineage: Lineage, epoch: int, step: int) -> dict[str, str]:
    journal = lineage.history
    span = _span_at(journal.spans(epoch), step)
    if span is None:
        is_skipped = journal.first_kept(epoch, step) != step
        return {"step": "skipped" if is_skipped else "after the end of the epoch"}
    entry, spec = span.entry, span.spec
    count = len(journal.removed(span.quarantines))
    return {
        "step": "exists",
        "master seed": str(journal.master_seed),
        "task": str(journal.task),
        "order": f"{spec.kind} {spec.name!r} of {spec.n} samples",
        "weights": ", ".join(f"{s.name} {s.share / 2**32:.4g}" for s in spec.sources) or "none",
        "batch": f"{entry.batch_size} on {entry.slots or entry.ranks} "
        + ("slots" if entry.slots else "rank(s)"),
        "position": str(span.positions(step)[0]),
        "quarantine": f"{count} sample(s)",
    }
