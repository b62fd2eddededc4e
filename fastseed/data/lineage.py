"""Which samples a step has, and which steps have a sample, from the history of a job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .._backend import derive
from .._backend.reference import philox
from .._utils import JSON, atomic_file, regular_file, validation
from ..derivation import scopes, streams
from .history import STOPPED, History, Span, check_known, indices_of, shift
from .journal import from_dict, from_json, to_json
from .order.permutation import MOST_VISITS, Array

_CLASS = "data.Lineage"
_MOST_BYTES = 1 << 24
_NUMBERS = ("epoch", "step", "rank", "slot", "row", "position", "sample", "occurrence", "index")

Visits: TypeAlias = "np.recarray[Any, np.dtype[np.void]]"
"""Samples in steps: a NumPy record array with the fields that ``Lineage`` describes."""


class Lineage:
    """Which step of a job saw which sample, for past and future steps.

    It needs the journal alone, which the state of ``fastseed.data.steps`` contains. For future
    steps it assumes that the job continues unchanged.

    Answers are NumPy record arrays, one record for each sample in a step, sorted by epoch, step and
    position. Their fields: ``epoch``, ``step``; ``rank``, that had the sample; ``slot``, the
    micro-batch of the step (without slots the rank); ``row``, the place in the batch; ``position``
    in the order of the epoch, from n on where it fills up a round of ranks or a step of slots;
    ``sample``, the index in the dataset; ``occurrence``, how often the order had the sample
    before, as of a ``Repeat``; ``source``, the name of the source in a mixture, else empty; and
    ``index``, the index of the sample in its source.

    Args:
        history: the history of the job; its ``epoch`` and ``step`` are those of the next step.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=2, task=1)
        >>> for epoch, step, batch in steps:
        ...     pass
        >>> lineage = fastseed.data.Lineage.load(steps.state_dict())
        >>> lineage.at(0, 1).sample.tolist()
        [0, 3, 5, 8]
        >>> [(int(v.epoch), int(v.step), int(v.row)) for v in lineage.where(7)]
        [(0, 0, 1), (1, 1, 0)]
    """

    def __init__(self, history: History) -> None:
        rule = "a History; Lineage.load reads a journal"
        self.history = validation.check_instance(_CLASS, "history", history, History, rule)

    def __repr__(self) -> str:
        epoch, step = self.history.point
        return f"Lineage(epoch={epoch}, step={step}, entries={len(self.history.entries)})"

    @classmethod
    def load(cls, source: Mapping[str, JSON] | str | os.PathLike[str]) -> Lineage:
        """Return the lineage of a journal.

        Args:
            source: the file that ``save`` wrote; or its content; or what ``state_dict`` of
                ``fastseed.data.steps`` returned.

        Raises:
            TypeError, ValueError: it is damaged, of another version, or no journal.
            OSError: the file cannot be read.
        """
        function = f"{_CLASS}.load"
        if isinstance(source, Mapping):
            found = source.get("journal", source) if "format" in source else source
            if isinstance(found, str):
                return cls(from_json(function, "source['journal']", found))
            return cls(from_dict(function, "source", found))
        path = validation.check_path(function, "source", source)
        try:
            text = regular_file.read(path, _MOST_BYTES)
        except ValueError as error:
            raise validation.value_error(function, "source", str(error), path) from error
        return cls(from_json(function, "source", text))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the journal as one JSON file, for ``load`` or ``docs/spec/data_order.py``.

        Args:
            path: the file; one that exists is replaced at once.
        """
        path = validation.check_path(f"{_CLASS}.save", "path", path)
        atomic_file.replace(path, to_json(self.history).encode() + b"\n")

    def at(self, epoch: int, step: int) -> Visits:
        """Return the samples of a step.

        Args:
            epoch: [0, 2**32).
            step: the number of the step in the epoch.

        Returns:
            The samples, in the order of their positions; none for a step that is skipped.

        Raises:
            TypeError, ValueError: an argument has the wrong type; the epoch has no such step; or
                its order is not a function of the epoch.
        """
        function = f"{_CLASS}.at"
        epoch = validation.check_int(function, "epoch", epoch, 0, scopes.MAX_EPOCH)
        step = validation.check_int(function, "step", step, 0, scopes.MAX_STEP)
        spans = list(self.history.spans(epoch))
        span = next((span for span in spans if span.first <= step < span.last), None)
        if span is None:
            if self.history.first_kept(epoch, step) != step:
                return _joined([])
            count = max((span.last for span in spans), default=0)
            rule = f"a step of epoch {epoch}, which has {count} of them in this history"
            raise validation.value_error(function, "step", rule, step)
        check_known(function, f"the order of epoch {epoch}", span.spec)
        first, end = span.positions(step)
        if end - first > MOST_VISITS:
            rule = f"one of at most {MOST_VISITS} samples"
            raise validation.value_error(function, "step", rule, end - first)
        order = self.history.order(epoch, span.spec, span.quarantines)
        positions = np.arange(first, end)
        return _records(span, epoch, step, positions, *order.entries(first, end - first))

    def where(
        self, sample: int | Iterable[int], source: str | None = None, *, epochs: range | None = None
    ) -> Visits:
        """Return every step that has a sample, which is counted in the order of each step.

        Args:
            sample: its index in the dataset, or several in a sequence or array, int64.
            source: None; or the source of a mixture that ``sample`` is counted in.
            epochs: which epochs, with step 1; None: those that have begun.

        Returns:
            The visits, also those of steps to come; none where a range of steps is skipped.

        Raises:
            TypeError, ValueError: an argument has the wrong type; the sample or the source does not
                exist; or the order of an epoch is not a function of it.
            RuntimeError: there may be more than 2**27 visits.
        """
        function = f"{_CLASS}.where"
        epoch, step = self.history.point
        chosen = range(max(1, epoch + (step > 0))) if epochs is None else epochs
        validation.check_instance(function, "epochs", chosen, range, "a range of epochs")
        if len(chosen) and (chosen.step != 1 or chosen[0] < 0 or chosen[-1] >= 2**32):
            raise validation.value_error(function, "epochs", "of step 1 in [0, 2**32)", epochs)
        specs = [self.history.orders[e.order] for e in self.history.entries if e.order != STOPPED]
        samples = indices_of(function, "sample", specs, sample, source)
        if len(chosen) * len(samples) > MOST_VISITS:
            rule = f"at most {MOST_VISITS} for all samples together"
            raise validation.value_error(function, "epochs", rule, chosen)
        found = []
        for alike in self.history.ranges_alike(chosen) if len(chosen) else ():
            for span in self.history.spans(alike.start):
                inside = shift(span.spec, samples, source)
                found.append(self._visits_of(function, span, alike, inside))
        if len(found) == 1:  # sorted already; records take long to move
            return found[0]
        visits = _joined(found)
        by = np.lexsort((visits.position, visits.step, visits.epoch))
        return visits[by].view(np.recarray)

    def keys(self, visits: Visits, name: str = "sample") -> npt.NDArray[np.uint64]:
        """Return the keys of the samples' random numbers, as ``per_sample`` has them.

        Args:
            visits: what ``at`` or ``where`` returned.
            name: ``sample`` is that of ``per_sample(dataset, generator)``; without ``generator``
                each library has a key of its own, of the name of its generator.

        Returns:
            (count, 2), numpy.uint64: the low and the high 64 bits of the 128-bit keys.
        """
        function = f"{_CLASS}.keys"
        validation.check_instance(function, "visits", visits, np.recarray, "what at returned")
        words = streams.name_words(scopes.check_name(function, name))
        history, out = self.history, np.empty((len(visits), 2), np.uint64)
        for epoch in np.unique(visits.epoch).tolist():
            here = visits.epoch == epoch
            scope = derive.scope_key(history.master_seed, history.task, epoch, 0)
            key = derive.name_key(scope, words)
            out[here] = philox.sample_keys(key, visits.sample[here], visits.occurrence[here])
        return out

    def _visits_of(self, function: str, span: Span, epochs: range, samples: Array) -> Visits:
        """Return the visits of ``samples`` in a span, which each of ``epochs`` has alike."""
        check_known(function, f"the order of epoch {span.epoch}", span.spec)
        first = span.positions(span.first)[0]
        end = span.positions(span.last - 1)[1]
        orders = [self.history.order(epoch, span.spec, span.quarantines) for epoch in epochs]
        parts = [order.visits(samples, end) for order in orders]
        number = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
        columns = number, *map(np.concatenate, zip(*parts, strict=True))
        inside = np.flatnonzero(columns[2] >= first)
        inside = inside[np.lexsort((columns[2][inside], columns[0][inside]))]
        number, which, positions, occurrences = (column[inside] for column in columns)
        steps = span.entry.step + (positions - span.entry.position) // span.layout.step_size
        epoch = number + epochs.start
        return _records(span, epoch, steps, positions, samples[which], occurrences)


def _records(
    span: Span, epochs: Any, steps: Any, positions: Array, samples: Array, occurrences: Array
) -> Visits:
    entry, spec, layout = span.entry, span.spec, span.layout
    start = entry.position + (steps - entry.step) * layout.step_size
    rank, slot, row = layout.place(positions - start)
    names, index = np.full(len(samples), "", "<U1"), samples
    if spec.sources:
        offsets = np.array(spec.offsets())
        s = np.searchsorted(offsets, samples, side="right") - 1
        names = np.array([source.name for source in spec.sources])[s]
        index = samples - offsets[s]
    numbers = (epochs, steps, rank, slot, row, positions, samples, occurrences, index)
    records = np.empty(len(samples), _record_type(names.dtype))
    for column, values in zip(records.dtype.names, (*numbers, names), strict=True):
        records[column] = values
    return records.view(np.recarray)


def _record_type(of_sources: Any) -> np.dtype[Any]:
    # Aligned: torch.from_numpy takes a column as it lies.
    return np.dtype([*((name, np.int64) for name in _NUMBERS), ("source", of_sources)], align=True)


def _joined(parts: list[Visits]) -> Visits:
    kinds = (part.dtype for part in parts)  # the widest has the longest names of sources
    kind = max(kinds, key=lambda kind: kind.itemsize, default=_record_type("<U1"))
    return np.concatenate([np.empty(0, kind), *parts], dtype=kind).view(np.recarray)
