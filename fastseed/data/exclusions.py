"""Steps that are skipped, and samples in quarantine: what may be left out of a history."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .._utils import validation
from ..derivation import scopes
from .history import History, Quarantine, Skip
from .lineage import check_known, indices_of, shift
from .order.quarantine import RESERVE

MOST_REMOVED = 0.5
"""The part of the positions that may have removed samples: each needs two spare ones then."""


def with_skip(function: str, history: History, epoch: int, first: int, last: int) -> History:
    """Return a history without some steps to come; ValueError if they are not."""
    epoch = validation.check_int(function, "epoch", epoch, 0, scopes.MAX_EPOCH)
    first = validation.check_int(function, "first_step", first, 0, scopes.MAX_STEP)
    last = validation.check_int(function, "last_step", last, first, scopes.MAX_STEP)
    if (epoch, first) < history.point:
        rule = f"not before step {history.step} of epoch {history.epoch}, which is next"
        raise validation.value_error(function, "first_step", rule, (epoch, first))
    check_known(function, "the order of the loader", history.latest_order)
    entry = history.entry_at(epoch, first)
    end = 0 if entry is None else history.end_of(entry)
    if last >= end:
        rule = f"below {end}, the number of steps of epoch {epoch}"
        raise validation.value_error(function, "last_step", rule, last)
    for skip in history.skips:
        if skip.epoch == epoch and skip.first <= last and first <= skip.last:
            rule = f"apart from steps {skip.first} to {skip.last}, which are skipped already"
            raise validation.value_error(function, "first_step", rule, (first, last))
    return dataclasses.replace(history, skips=(*history.skips, Skip(epoch, first, last)))


def with_quarantine(function: str, history: History, samples: Any, source: str | None) -> History:
    """Return a history without samples from the next step on; ValueError if they are too many."""
    spec = check_known(function, "the order of the loader", history.latest_order)
    indices = shift(spec, indices_of(function, "samples", [spec], samples, source), source)
    known = {sample for q in history.quarantines for sample in q.samples}
    new = sorted({*indices.tolist()} - known)
    if not new:
        return history
    gone = np.array(sorted({*new} | known), np.int64)
    entry = history.entries[-1]
    if entry.layout(spec.n).step_size > RESERVE:
        rule = f"no samples in steps of more than {RESERVE}"
        raise validation.value_error(function, "samples", rule, len(new))
    if spec.share_of(gone) > MOST_REMOVED:
        rule = "of at most half of the positions of the order, with those removed before"
        raise validation.value_error(function, "samples", rule, len(gone))
    quarantine = Quarantine(*history.point, tuple(new))
    return dataclasses.replace(history, quarantines=(*history.quarantines, quarantine))
