"""Which samples a step has, and which steps have a sample, from the journal of a job."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ..._backend import derive, tensors
from ..._backend.reference import philox
from ..._utils import atomic_file, validation
from ...derivation import scopes, streams
from ..order.permutation import MOST_VISITS, Array, Order, Permutation, visits_of_keys
from ..order.quarantine import Quarantined
from ..order.shuffle import MAX_N
from .journal import STOPPED, Journal, Span
from .orders import SHUFFLE, OrderSpec, offsets

_CLASS = "data.lineage.Lineage"


class Visit(NamedTuple):
    """One sample in one step; ``Visits`` describes the fields.

    Examples:
        >>> from fastseed.data.lineage import Visit
        >>> Visit(0, 5, rank=1, slot=1, row=0, position=41, sample=7, occurrence=0).sample
        7
    """

    epoch: int
    step: int
    rank: int
    slot: int
    row: int
    position: int
    sample: int
    occurrence: int


@dataclasses.dataclass(frozen=True)
class Visits:
    """Samples in steps, one element of each column for each, sorted by epoch, step and position.

    Attributes:
        epoch: as are all columns that follow: (count,), numpy.int64.
        step: the number of the step in the epoch.
        rank: the rank that had, or has, the sample.
        slot: the micro-batch of the step: without slots the rank, since each rank has one.
        row: the sample's place in the batch.
        position: its place in the order of the epoch; it is at the end of the order where it fills
            up a round of ranks or a step of slots.
        sample: the index of the sample in the dataset.
        occurrence: how often the order had the sample before, as of a ``Repeat``.
        master_seed: that of the job.
        task: that of the loop over steps.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> visits = fastseed.data.steps(batches, epochs=2).lineage().at(0, 2)
        >>> visits.sample.tolist(), visits.position.tolist()
        ([9, 1], [8, 9])
        >>> next(iter(visits))
        Visit(epoch=0, step=2, rank=0, slot=0, row=0, position=8, sample=9, occurrence=0)
        >>> visits.keys().shape
        (2, 2)
    """

    epoch: Array
    step: Array
    rank: Array
    slot: Array
    row: Array
    position: Array
    sample: Array
    occurrence: Array
    master_seed: int
    task: int

    def __len__(self) -> int:
        return len(self.sample)

    def __iter__(self) -> Iterator[Visit]:
        columns = (getattr(self, name).tolist() for name in Visit._fields)
        return map(Visit._make, zip(*columns, strict=True))

    def keys(self, name: str = "sample") -> npt.NDArray[np.uint64]:
        """Return the keys of the samples' random numbers, as ``per_sample`` has them.

        Args:
            name: ``sample`` is that of ``per_sample(dataset, generator)``; without ``generator``
                each library has a key of its own, of the name of its generator.

        Returns:
            (count, 2), numpy.uint64: the low and the high 64 bits of the 128-bit keys.

        Raises:
            TypeError, ValueError: ``name`` is no name.
        """
        words = streams.name_words(scopes.check_name("data.lineage.Visits.keys", name))
        out = np.empty((len(self), 2), np.uint64)
        for epoch in np.unique(self.epoch).tolist():
            here = self.epoch == epoch
            scope = derive.scope_key(self.master_seed, self.task, epoch, 0)
            key = derive.name_key(scope, words)
            out[here] = philox.sample_keys(key, self.sample[here], self.occurrence[here])
        return out


class Lineage:
    """The samples of every step of a job, before and after now, from a journal.

    It needs neither the dataset nor the job: only the journal, which the state of
    ``fastseed.data.steps`` contains. Steps after now are answered as they come if the job
    continues as it is.

    Args:
        journal: the journal.

    Attributes:
        journal: the journal; its ``epoch`` and ``step`` are those of the next step.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=2, task=1)
        >>> for epoch, step, batch in steps:
        ...     pass
        >>> steps.lineage().at(0, 1).sample.tolist()
        [0, 3, 5, 8]
        >>> [(visit.epoch, visit.step, visit.row) for visit in steps.lineage().where(7)]
        [(0, 0, 1), (1, 1, 0)]
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._order = functools.lru_cache(maxsize=4)(self._make_order)

    def __repr__(self) -> str:
        epoch, step = self.journal.point
        return f"Lineage(epoch={epoch}, step={step}, entries={len(self.journal.entries)})"

    # ------------------------------------------------------------------ questions

    def at(self, epoch: int, step: int, *, rank: int | None = None) -> Visits:
        """Return the samples of a step.

        Args:
            epoch: [0, 2**32).
            step: the number of the step in the epoch.
            rank: None: those of all ranks.

        Returns:
            The samples, in the order of their positions; none for a step that is skipped.

        Raises:
            TypeError, ValueError: an argument has the wrong type; the epoch has no such step; or
                its order is not a function of the epoch.
            RuntimeError: there are not enough spare positions for the samples in quarantine.
        """
        function = f"{_CLASS}.at"
        epoch = validation.check_int(function, "epoch", epoch, 0, scopes.MAX_EPOCH)
        step = validation.check_int(function, "step", step, 0, scopes.MAX_STEP)
        journal = self.journal
        for span in journal.spans(epoch):
            if span.first <= step < span.last:
                return self._samples_of(function, span, step, rank)
        if journal.skipped_from(epoch, step) != step:
            return self._visits([])
        ends = [span.last for span in journal.spans(epoch)]
        rule = f"a step of epoch {epoch}, which has {max(ends, default=0)} of them in this history"
        raise validation.value_error(function, "step", rule, step)

    def where(
        self, sample: int | Iterable[int], source: str | None = None, *, epochs: range | None = None
    ) -> Visits:
        """Return every step that has a sample.

        Args:
            sample: its index in the dataset, or several in a sequence or array, int64.
            source: None; or the source of a mixture that ``sample`` is counted in.
            epochs: which epochs, with step 1; None: those that have begun.

        Returns:
            The visits, those of steps to come too: (``epoch``, ``step``) is then not before that
            of the journal. None where a range of steps is skipped.

        Raises:
            TypeError, ValueError: an argument has the wrong type; the sample or the source does not
                exist; or the order of an epoch is not a function of it.
            RuntimeError: there are not enough spare positions for the samples in quarantine, or
                there may be more than 2**27 visits.
        """
        function = f"{_CLASS}.where"
        epoch, step = self.journal.point
        chosen = range(max(1, epoch + (step > 0))) if epochs is None else epochs
        validation.check_instance(function, "epochs", chosen, range, "a range of epochs")
        if len(chosen) and (chosen.step != 1 or chosen[0] < 0 or chosen[-1] >= 2**32):
            raise validation.value_error(function, "epochs", "of step 1 in [0, 2**32)", epochs)
        samples = indices_of(function, "sample", self.journal, sample, source)
        if len(chosen) * len(samples) > MOST_VISITS:
            rule = f"at most {MOST_VISITS} for all samples together"
            raise validation.value_error(function, "epochs", rule, chosen)
        found = []
        for alike in self.journal.alike(chosen) if len(chosen) else ():
            for span in self.journal.spans(alike.start):
                found.append(self._visits_of(function, span, alike, samples))
        visits = self._visits(found)
        if len(visits.epoch) > 1:
            by = np.lexsort((visits.position, visits.step, visits.epoch))
            columns = {name: getattr(visits, name)[by] for name in Visit._fields}
            visits = dataclasses.replace(visits, **columns)
        return visits

    def sources(self, visits: Visits) -> list[tuple[str, int]]:
        """Return the source of each visit, and the index of its sample there.

        Raises:
            ValueError: the order of a visit is not that of a mixture.
        """
        found = []
        for epoch, step, sample in zip(visits.epoch, visits.step, visits.sample, strict=True):
            entry = self.journal.entry_at(int(epoch), int(step))
            spec = None if entry is None else self.journal.orders[entry.order]
            if spec is None or not spec.sources:
                rule = "of steps whose order is a mixture"
                raise validation.value_error(f"{_CLASS}.sources", "visits", rule, (epoch, step))
            starts = offsets(spec)
            s = int(np.searchsorted(starts, sample, side="right")) - 1
            found.append((spec.sources[s].name, int(sample) - starts[s]))
        return found

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the contract: the journal as one JSON file.

        ``docs/spec/data_order.py`` answers the same questions from it, without fastseed.

        Args:
            path: the file; one that exists is replaced at once.

        Raises:
            TypeError, ValueError: ``path`` is no path.
            OSError: it cannot be written.
        """
        path = validation.check_path(f"{_CLASS}.export", "path", path)
        text = json.dumps(self.journal.to_dict(), separators=(",", ":"), ensure_ascii=False)
        atomic_file.replace(path, text.encode() + b"\n")

    # ------------------------------------------------------------------ parts

    def _spec(self, function: str, span: Span) -> OrderSpec:
        spec = self.journal.orders[span.entry.order]
        if self.journal.is_unknown(span.entry):
            rule = "a ShuffleSampler or MixtureSampler, whose order is a function of the epoch"
            raise validation.value_error(
                function, f"the order of epoch {span.epoch}", rule, spec.name
            )
        return spec

    def _make_order(self, epoch: int, number: int, quarantines: int) -> Order:
        journal = self.journal
        spec = journal.orders[number]
        order = spec.order(journal.master_seed, journal.task, epoch)
        if quarantines:
            order = Quarantined(order, spec.n, removed(journal, quarantines))
        return order

    def _samples_of(self, function: str, span: Span, step: int, rank: int | None) -> Visits:
        entry, spec = span.entry, self._spec(function, span)
        if rank is not None:
            rank = validation.check_int(function, "rank", rank, 0, entry.ranks - 1)
        first, end = span.positions(step, spec.n)
        if end - first > MOST_VISITS:
            rule = f"one of at most {MOST_VISITS} samples"
            raise validation.value_error(function, "step", rule, end - first)
        order = self._order(span.epoch, entry.order, span.quarantines)
        samples, occurrences = order.entries(first, end - first)
        positions = np.arange(first, end)
        epochs, steps = (np.full(len(positions), number) for number in (span.epoch, step))
        columns = _columns(span, epochs, steps, positions, samples, occurrences)
        if rank is not None:
            own = columns[2] == rank
            columns = tuple(column[own] for column in columns)
        return self._visits([columns])

    def _visits_of(
        self, function: str, span: Span, epochs: range, samples: Array
    ) -> tuple[Array, ...]:
        """Return the columns of ``samples`` in a span, which each of ``epochs`` has alike."""
        entry, spec = span.entry, self._spec(function, span)
        first, end = span.positions(span.first, spec.n)[0], span.positions(span.last - 1, spec.n)[1]
        orders = (self._order(epoch, entry.order, span.quarantines) for epoch in epochs)
        if spec.kind == SHUFFLE and not span.quarantines:
            keys = [order.key for order in orders if isinstance(order, Permutation)]
            number, *columns = visits_of_keys(keys, spec.n, samples, end)
        else:
            parts = [order.visits(samples, end) for order in orders]
            number = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
            columns = list(map(np.concatenate, zip(*parts, strict=True)))
        inside = np.flatnonzero(columns[1] >= first)
        which, positions, occurrences = (column[inside] for column in columns)
        steps = entry.step + (positions - entry.position) // entry.step_size
        epoch = number[inside] + epochs.start
        return _columns(span, epoch, steps, positions, samples[which], occurrences)

    def _visits(self, found: list[tuple[Array, ...]]) -> Visits:
        empty = (np.empty(0, np.int64),) * len(Visit._fields)
        columns = map(np.concatenate, zip(empty, *found, strict=True))
        named = dict(zip(Visit._fields, columns, strict=True))
        return Visits(**named, master_seed=self.journal.master_seed, task=self.journal.task)


def indices_of(
    function: str, argument: str, journal: Journal, given: Any, source: str | None
) -> Array:
    """Return one index or several as indices in the dataset, which all orders must have."""
    specs = [journal.orders[e.order] for e in journal.entries if e.order != STOPPED]
    if not specs:
        raise RuntimeError(f"fastseed.{function}: the journal has no step yet: iterate first")
    if getattr(given, "ndim", 1) == 0:
        given = given.reshape(1)
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        given = [validation.check_int(function, argument, given, 0, MAX_N)]
    elif isinstance(given, np.ndarray) and given.dtype.kind in "iu":
        given = torch.from_numpy(given.astype(np.int64))
    elif not hasattr(given, "__len__"):
        given = list(given)
    cpu = torch.device("cpu")
    found = tensors.as_int64(function, argument, given, len(given), 0, MAX_N, cpu).to(cpu)
    first, size, spec = 0, min(spec.size for spec in specs), specs[-1]
    if source is not None and not spec.sources:
        raise validation.value_error(function, "source", "None without a MixtureSampler", source)
    if source is not None:
        names = [part.name for part in spec.sources]
        s = names.index(validation.check_choice(function, "source", source, names))
        first, size = offsets(spec)[s], spec.sources[s].size
    tensors.check_values(function, argument, found, size - 1)
    shifted: Array = found.numpy() + first
    return shifted


def removed(journal: Journal, quarantines: int) -> Array:
    """Return the samples of the first quarantines of a journal, sorted."""
    samples = {sample for q in journal.quarantines[:quarantines] for sample in q.samples}
    return np.array(sorted(samples), np.int64)


def _columns(
    span: Span,
    epochs: Array,
    steps: Array,
    positions: Array,
    samples: Array,
    occurrences: Array,
) -> tuple[Array, ...]:
    """Return the columns of visits, in the order of ``Visit``."""
    entry = span.entry
    inside = positions - entry.position - (steps - entry.step) * entry.step_size
    if entry.slots:
        slot, row = np.divmod(inside, entry.batch_size)
        rank = slot % entry.ranks
    else:
        row, rank = np.divmod(inside, entry.ranks)
        slot = rank
    return epochs, steps, rank, slot, row, positions, samples, occurrences
