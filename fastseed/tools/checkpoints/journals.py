"""Which steps of a job had which samples, from a contract or a checkpoint; two jobs compared."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..._utils import JSON, regular_file, strict_json, validation
from ...data import Lineage
from ...data.history import Span
from ...data.lineage import Visits
from ...data.order.spec import OrderSpec
from ...derivation import scopes
from .folders import noted, parts_of
from .states import Path, source_of, walk

_FUNCTION = "tools.checkpoints.read_lineage"
_START = '{"format":"fastseed.lineage",'  # of the text that states of steps contain
_MAX_BYTES = 1 << 24  # of a JSON file
_MAX_EPOCHS = 2**32
_MAX_PARTS = 1_000_000  # steps, or ranges of equal ones, of epochs that a caller names
_NAMES = 6  # in a list

Point = tuple[int, int]


def read_lineage(path: str | os.PathLike[str], *, task: int | None = None) -> Lineage:
    """Return the lineage of the job whose journal a file or a folder has.

    No code of a checkpoint is run: pickles are read as data. The state of ``fastseed.data.steps``
    may be anywhere in it.

    Args:
        path: what ``Lineage.save`` wrote; the state of ``fastseed.data.steps`` as JSON; a file of
            torch.save or a plain pickle; or the folder of one checkpoint, also of
            ``torch.distributed.checkpoint``.
        task: the task of the loop, if a checkpoint has the states of several; None: there is one.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: there is no journal, or more than one; or it is damaged or of another version.
        OSError: the file cannot be read.

    Examples:
        >>> import os, tempfile, fastseed, torch
        >>> from fastseed.tools import checkpoints
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=2)
        >>> epoch, step, batch = next(iter(steps))
        >>> path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
        >>> torch.save({"model": {}, "steps": steps.state_dict()}, path)
        >>> checkpoints.read_lineage(path).at(0, 0).sample.tolist()
        [2, 7, 6, 4]
    """
    path = validation.check_path(_FUNCTION, "path", path)
    if task is not None:
        task = validation.check_int(_FUNCTION, "task", task, 0, scopes.MAX_TASK)
    problems: list[str] = []
    if not os.path.exists(path):
        raise FileNotFoundError(f"fastseed.{_FUNCTION}: path must exist, got {path!r}")
    if is_json(path):
        try:
            found = [("", _parsed(regular_file.read(path, _MAX_BYTES)))]
        except ValueError as error:
            raise _error("a contract, or a state of fastseed.data.steps", path, error) from error
    else:
        found = _of_checkpoint(path, problems)
    chosen = {one.history: (name, one) for name, one in found if task in (None, one.history.task)}
    if len(chosen) == 1:
        ((_, one),) = chosen.values()
        return one
    if chosen:
        names = [f"{name} (task {one.history.task})" for name, one in chosen.values()]
        problem = f"it has several: {', '.join(names[:_NAMES])}; give one file, or the task"
    else:
        held = f"its tasks: {sorted({one.history.task for _, one in found})}" if found else ""
        problem = held or "; ".join(problems[:_NAMES]) or "it has none"
    of = "" if task is None else f" of task {task}"
    rule = f"a contract, or a checkpoint with one journal of fastseed.data.steps{of}"
    raise _error(rule, path, problem)


def has_lineage(path: str) -> bool:
    """Return whether a checkpoint holds a journal, damaged or not."""
    return any(True for _ in _texts_in(path, []))


def _error(rule: str, path: str, problem: object) -> ValueError:
    return ValueError(f"fastseed.{_FUNCTION}: path must be {rule}, got {path!r} ({problem})")


def is_json(path: str) -> bool:
    """Return True for a file that begins as an object of JSON, which no pickle does."""
    try:
        with regular_file.open_file(path) as file:
            return bool(file.read(64).lstrip().startswith(b"{"))
    except (OSError, ValueError):  # a folder, or not to be read
        return False


def _of_checkpoint(path: str, problems: list[str]) -> list[tuple[str, Lineage]]:
    """Return each journal with where it is; what cannot be read is added to ``problems``."""
    found = []
    for name, text in _texts_in(path, problems):
        try:
            found.append((name, _parsed(text)))
        except ValueError as error:
            raise _error("a checkpoint without damage", path, f"{name}: {error}") from error
    return found


def _texts_in(path: str, problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the text of each journal with where it is."""
    for part in parts_of(path, problems):
        with noted(part.source, problems):
            for keys, text in walk(part, _journals):
                yield source_of(part, keys), text


def _journals(_: Path, node: object) -> Iterator[str]:
    """Yield the journal that a state is, or contains.

    A checkpoint of torch.distributed has the fields of a state as entries of their own.
    """
    fields = [node.get("journal")] if isinstance(node, dict) else [node]
    for text in fields:
        if isinstance(text, str) and text.startswith(_START):
            yield text


def _parsed(text: str | bytes) -> Lineage:
    try:
        given = strict_json.parse(text)
    except strict_json.Invalid as error:
        raise ValueError(f"it must be {error}") from error
    return Lineage.load(given)


# ---------------------------------------------------------------- steps and rows


def locate(lineage: Lineage, number: int) -> tuple[int, int]:
    """Return the epoch and the step of a step that is counted from 0 over all epochs.

    Steps that are skipped count, as they keep their numbers.

    Args:
        lineage: of the job.
        number: [0, 2**63).

    Raises:
        TypeError, ValueError: ``number`` is no integer or out of range; or the job has no such
            step.

    Examples:
        >>> import fastseed, torch
        >>> from fastseed.tools import checkpoints
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=3)  # 3 steps each
        >>> checkpoints.locate(steps.lineage(), 7)
        (2, 1)
    """
    function = "tools.checkpoints.locate"
    validation.check_instance(function, "lineage", lineage, Lineage, "a Lineage")
    left = validation.check_int(function, "number", number, 0, 2**63 - 1)
    journal = dataclasses.replace(lineage.history, skips=())
    for epochs in journal.ranges_alike(range(_MAX_EPOCHS)):
        count = max((span.last for span in journal.spans(epochs.start)), default=0)
        if left < count * len(epochs):
            return epochs.start + left // count, left % count
        left -= count * len(epochs)
    rule = f"a step of the job, which has {number - left} of them"
    raise validation.value_error(function, "number", rule, number)


def rows_of(lineage: Lineage, visits: Visits) -> list[dict[str, JSON]]:
    """Return the visits of a lineage as rows for printing.

    Returns:
        Dicts of the fields of ``Visit``; ``source`` and ``index``, that of the sample in the
        source, or None if the orders of the job are not all mixtures; ``key``, the 128 bits of its
        random numbers in hexadecimal.

    Raises:
        TypeError: an argument has the wrong type.
    """
    function = "tools.checkpoints.rows_of"
    validation.check_instance(function, "lineage", lineage, Lineage, "a Lineage")
    keys = lineage.keys(visits).tolist()
    is_mixed = all(spec.sources for spec in lineage.history.orders)
    return [
        {
            **{name: visit[name].item() for name in visits.dtype.names or ()},
            "source": str(visit.source) if is_mixed else None,
            "index": int(visit.index) if is_mixed else None,
            "key": f"{high << 64 | low:032x}",
        }
        for visit, (low, high) in zip(visits, keys, strict=True)
    ]


# ---------------------------------------------------------------- two jobs


class JobComparison(NamedTuple):
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


def compare_jobs(a: Lineage, b: Lineage, *, epochs: int | None = None) -> JobComparison:
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
        >>> from fastseed.tools import checkpoints
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> jobs = [fastseed.data.steps(batches, epochs=2) for _ in range(2)]
        >>> jobs[1].quarantine(3)
        >>> found = checkpoints.compare_jobs(*(job.lineage() for job in jobs))
        >>> found.first, found.why, found.differing, found.steps, found.missing, found.samples
        ((0, 1), ('quarantine: 0 sample(s), 1 sample(s)',), 1, 3, 1, 10)
    """
    function = "tools.checkpoints.compare_jobs"
    for name, one in (("a", a), ("b", b)):
        validation.check_instance(function, name, one, Lineage, "a Lineage")
    is_long = epochs is not None
    if epochs is None:
        points = [one.history.point for one in (a, b)]
        epochs = max(1, *(epoch + (step > 0) for epoch, step in points))
    epochs = validation.check_int(function, "epochs", epochs, 1, 2**32)
    first: Point | None = None
    steps = differing = samples = missing = compared = 0
    for alike in _alike(a, b, epochs):
        for epoch in alike:
            parts = list(_epoch(a, b, epoch))
            is_same = all(gone is None for *_, gone in parts)
            times = len(alike) if is_same else 1  # the same layout: so are all of these epochs
            compared += len(parts)
            if is_long and compared > _MAX_PARTS:
                rule = f"fewer: {_MAX_PARTS:,} steps were compared up to epoch {epoch}"
                raise validation.value_error(function, "epochs", rule, epochs)
            for step, count, size, gone in parts:
                steps, samples = steps + times * count, samples + times * size
                if gone is not None:
                    first = first or (epoch, step)
                    differing, missing = differing + count, missing + gone
            if is_same:
                break
    why = () if first is None else tuple(_reasons(a, b, *first))
    pairs = [(f, getattr(a.history, f), getattr(b.history, f)) for f in ("master_seed", "task")]
    notes = tuple(f"{field}: {x}, {y}: keys of samples differ" for field, x, y in pairs if x != y)
    return JobComparison(epochs, steps, differing, first, why, samples, missing, notes)


def _alike(a: Lineage, b: Lineage, epochs: int) -> Iterator[range]:
    """Yield parts of the epochs in which each job's steps are cut alike."""
    ranges = [[*one.history.ranges_alike(range(epochs))] for one in (a, b)]
    edges = sorted({one.start for part in ranges for one in part} | {epochs})
    yield from (range(*pair) for pair in itertools.pairwise(edges))


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
