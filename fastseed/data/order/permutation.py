"""The order of an epoch as a function: which sample of a dataset is at which position."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ..._backend import derive, native
from .repeats import Repeat

# Indices made at a time: soon, then in bulk, but without waking other threads.
_FIRST_CHUNK, _LARGEST_CHUNK = 1 << 8, 1 << 12
MOST_VISITS = 2**27  # that one question may have, of all its samples together
RESERVE = 2**24  # positions after the end that may fill up a round of ranks, or of slots
_MOST_SPARE = 2**20  # spare positions that are read at a time
_SLACK = 2**20  # spare positions, for orders that have most removed samples early

Array = npt.NDArray[np.int64]


class Order:
    """Which sample is at which position; any part of it is computed at once."""

    @property
    def period(self) -> int:
        """Positions in which every sample comes."""
        raise NotImplementedError

    def part(self, start: int, count: int, stride: int = 1) -> torch.Tensor:
        """Return the samples at positions start, start + stride, ...: ``count`` of them."""
        indices = itertools.chain.from_iterable(self._chunks(start, stride, count))
        return torch.tensor(list(map(int, indices)), dtype=torch.int64, device="cpu")

    def index(self, i: int) -> int:
        """Return the sample at position ``i``."""
        return int(self.part(i, 1))

    def entries(self, start: int, count: int) -> tuple[Array, Array]:
        """Return (samples, occurrences) at ``count`` positions, also past the end of the order."""
        raise NotImplementedError

    def visits(self, samples: Array, limit: int) -> tuple[Array, Array, Array]:
        """Return (indices into ``samples``, positions, occurrences) of visits below ``limit``."""
        raise NotImplementedError

    def write(self, out: torch.Tensor, start: int) -> torch.Tensor:
        """Write the samples at positions start, start + 1, ... to ``out``, which is checked."""
        return out.copy_(self.part(start, len(out)))

    def share(self, first: int, rank: int, world_size: int, size: int) -> Iterator[int]:
        """Yield a rank's ``size`` indices: positions first + rank, and every world_size-th."""
        return itertools.chain.from_iterable(self._chunks(first + rank, world_size, size))

    def _chunks(self, start: int, stride: int, size: int) -> Iterator[list[int]]:
        raise NotImplementedError


@dataclass(frozen=True)
class Permutation(Order):
    """The shuffle of a key (``docs/spec/derivation.md``); without one the order of the dataset.

    ``_fill`` is one way of a function of n, ``positions`` the way back.
    """

    n: int
    key: int | None

    def positions(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the position of each of the int64 ``samples``; -1 for one outside of [0, n)."""
        if self.key is None:
            return torch.where((samples >= 0) & (samples < self.n), samples, -1)
        return derive.shuffle_positions(self.key, self.n, samples)

    def index(self, i: int) -> int:
        return i if self.key is None else derive.shuffle_index(self.key, self.n, i)

    def _fill(self, out: torch.Tensor, start: int, stride: int) -> torch.Tensor:
        """Write the samples at positions start, start + stride, ... below n, and return ``out``."""
        if self.key is None:
            torch.arange(start, start + len(out) * stride, stride, out=out)
        else:
            derive.fill_shuffle(out, self.key, self.n, start, stride)
        return out

    def write(self, out: torch.Tensor, start: int) -> torch.Tensor:
        on_cuda = out.device.type == "cuda" and native.has_cuda
        if out.is_contiguous() and (on_cuda or out.device.type == "cpu"):
            return self._fill(out, start, 1)
        return super().write(out, start)

    @property
    def period(self) -> int:
        return self.n

    def entries(self, start: int, count: int) -> tuple[Array, Array]:
        occurrences, i = np.divmod(np.arange(start, start + count), self.n)
        if count > self.n:
            return self.part(0, self.n).numpy()[i], occurrences
        samples = np.empty(count, np.int64)
        inside = min(count, self.n - start % self.n)
        for part, first in ((samples[:inside], start % self.n), (samples[inside:], 0)):
            self._fill(torch.from_numpy(part), first, 1)
        return samples, occurrences

    def visits(self, samples: Array, limit: int) -> tuple[Array, Array, Array]:
        first = self.positions(torch.from_numpy(samples)).numpy()
        passes = -(-limit // self.n)  # the order begins again
        check_visits(len(first), passes)
        found = [(np.empty(0, np.int64),) * 3]
        for times in range(passes):
            here = np.flatnonzero((first >= 0) & (first < limit - times * self.n))
            found.append((here, first[here] + times * self.n, np.full(len(here), times)))
        which, positions, occurrences = map(np.concatenate, zip(*found, strict=True))
        return which, positions, occurrences

    def part(self, start: int, count: int, stride: int = 1) -> torch.Tensor:
        out = derive.empty_words(count, dtype=torch.int64)
        return self._fill(out, start, stride)

    def _chunks(self, start: int, stride: int, size: int) -> Iterator[list[int]]:
        inside = max(0, min(size, -(-(self.n - start) // stride)))
        done, chunk = 0, _FIRST_CHUNK
        while done < inside:
            chunk = min(chunk, inside - done)
            yield self.part(start + done * stride, chunk, stride).tolist()
            done, chunk = done + chunk, min(4 * chunk, _LARGEST_CHUNK)
        for k in range(inside, size):  # from the front of the order again
            occurrence, i = divmod(start + k * stride, self.n)
            yield [Repeat(self.index(i), occurrence)]


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


def check_visits(samples: int, passes: int) -> None:
    """Raise RuntimeError if samples have too many visits in so many passes through orders."""
    if (most := max(1, samples) * passes) > MOST_VISITS:
        raise RuntimeError(
            f"fastseed.data.Lineage: the visits of {samples} sample(s) must be at most "
            f"{MOST_VISITS}, got up to {most}: ask for fewer samples"
        )
