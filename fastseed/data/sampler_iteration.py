"""One iteration of a sampler: the indices of a rank, made chunk by chunk, and counted."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import NamedTuple

import torch

from .._backend import derive_ops
from .occurrences import Repeat

_FIRST_CHUNK, _LARGEST_CHUNK = 1 << 8, 1 << 14  # indices made at a time: soon, then in bulk


class Share(NamedTuple):
    """This rank's part of an iteration: positions start, start + stride, ..., ``size`` of them."""

    key: int | None
    n: int
    start: int
    stride: int
    size: int

    def indices(self, done: int, size: int) -> list[int]:
        """Return ``size`` indices after the first ``done``, all at positions below n."""
        start = self.start + done * self.stride
        if self.key is None:
            return list(range(start, start + size * self.stride, self.stride))
        out = torch.empty(size, dtype=torch.int64, device="cpu")
        derive_ops.fill_shuffle(out, self.key, self.n, start, self.stride)
        indices: list[int] = out.tolist()
        return indices

    def repeat(self, k: int) -> Repeat:
        """Return the k-th index, whose position is n or more: one from the front of the order."""
        occurrence, i = divmod(self.start + k * self.stride, self.n)
        j = i if self.key is None else derive_ops.shuffle_index(self.key, self.n, i)
        return Repeat(j, occurrence)


class SamplerIteration:
    """One iteration of a sampler: its indices, and how many of them were taken."""

    def __init__(self, master_seed: int, task: int, epoch: int, first: int, share: Share) -> None:
        self.at = master_seed, task, epoch
        self._first, self._share = first, share
        self._done = self._size = 0  # indices before the current chunk, and in it
        self._chunk: Iterator[int] = iter(())

    def __iter__(self) -> Iterator[int]:
        share = self._share
        inside = max(0, min(share.size, -(-(share.n - share.start) // share.stride)))
        done, size = 0, _FIRST_CHUNK
        while done < inside:
            size = min(size, inside - done)
            yield from self._count(share.indices(done, size))
            done, size = done + size, min(4 * size, _LARGEST_CHUNK)
        for k in range(inside, share.size):
            yield from self._count([share.repeat(k)])

    def _count(self, chunk: list[int]) -> Iterator[int]:
        self._done += self._size
        self._size, self._chunk = len(chunk), iter(chunk)
        return self._chunk

    def position(self) -> int:
        """Return the global position from which all ranks would resume."""
        taken = self._done + self._size - operator.length_hint(self._chunk)
        if taken == self._share.size:
            return self._share.n
        return min(self._first + taken * self._share.stride, self._share.n)
