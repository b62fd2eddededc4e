"""An order from which samples are removed: a spare position fills each of their places."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .permutation import MOST_VISITS, Array, Order
from .repeats import Repeat

RESERVE = 2**24  # positions after the end that may fill up a round of ranks, or of slots
_MOST_SPARE = 2**20  # spare positions that are read at a time
_SLACK = 2**20  # spare positions, for orders that have most removed samples early


class Quarantined(Order):
    """``order`` with ``n`` positions in an epoch, without the samples ``removed``, sorted.

    Each of their places has a sample of a spare position, beyond those that may fill up the last
    round of ranks. ``docs/spec/data-order.md`` specifies which one, on any number of ranks.
    """

    def __init__(self, order: Order, n: int, removed: Array) -> None:
        self._order, self._n, self._removed = order, n, removed

    def places(self, limit: int) -> tuple[Array, Array, Array]:
        """Return (position, sample, occurrence) of the places below ``limit`` that are filled."""
        found = np.sort(self._order.visits(self._removed, limit)[1])
        first = self._n + RESERVE
        end = first + min(4 * (limit + self._order.period) + _SLACK, MOST_VISITS)
        samples, occurrences, chunk = np.empty(0, np.int64), np.empty(0, np.int64), 32
        while len(samples) < len(found):
            chunk = min(2 * chunk, _MOST_SPARE)
            count = min(end - first, max(len(found) - len(samples), chunk))
            if count <= 0:
                raise RuntimeError(
                    f"fastseed.data.steps: {len(self._removed)} quarantined samples have "
                    f"{len(found)} places in this epoch, too many for its spare positions: train "
                    "on a dataset without them"
                )
            more, times = self._order.entries(first, count)
            kept = ~np.isin(more, self._removed)
            samples = np.concatenate([samples, more[kept]])
            occurrences = np.concatenate([occurrences, times[kept]])
            first += count
        return found, samples[: len(found)], occurrences[: len(found)]

    def entries(self, start: int, count: int) -> tuple[Array, Array]:
        samples, occurrences = self._order.entries(start, count)
        filled = np.flatnonzero(np.isin(samples, self._removed))
        if len(filled):
            places, others, times = self.places(start + count)
            k = np.searchsorted(places, start + filled)
            samples[filled], occurrences[filled] = others[k], times[k]
        return samples, occurrences

    def visits(self, samples: Array, limit: int) -> tuple[Array, Array, Array]:
        kept = np.flatnonzero(~np.isin(samples, self._removed))
        which, positions, occurrences = self._order.visits(samples[kept], limit)
        places, others, times = self.places(limit)
        found = [(kept[which], positions, occurrences)]
        for k in np.flatnonzero(np.isin(others, samples[kept])):
            asked = kept[samples[kept] == others[k]]
            found.append((asked, *(np.full(len(asked), a[k]) for a in (places, times))))
        which, positions, occurrences = map(np.concatenate, zip(*found, strict=True))
        return which, positions, occurrences

    def _chunks(self, start: int, stride: int, size: int) -> Iterator[list[int]]:
        columns = (column.tolist() for column in self.places(start + size * stride))
        places, samples, times = columns
        filled = dict(zip(places, zip(samples, times, strict=True), strict=True))
        for chunk in self._order._chunks(start, stride, size):
            for k in range(len(chunk)):
                if (found := filled.get(start + k * stride)) is not None:
                    chunk[k] = Repeat(*found)
            yield chunk
            start += len(chunk) * stride
