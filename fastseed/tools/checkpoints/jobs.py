"""Count the steps of a job, and print the samples of a step."""

from __future__ import annotations

from collections.abc import Iterator

from ..._utils import JSON, validation
from ...data import Lineage
from ...data.history import Point
from ...data.lineage import Visits


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
    history = lineage.history._replace(skips=())
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
