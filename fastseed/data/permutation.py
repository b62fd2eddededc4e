"""The order of an epoch as a function: which sample of a dataset is at which position.

It is a keyed bijection of [0, n) (``docs/derivation.md``, "Shuffle"), so any part of it can be
computed at once and no list of indices exists. It depends on the master seed, task, epoch, name
and n, not on the number of ranks or workers.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .._backend import derive_ops, draw_ops, tensors
from .occurrences import Repeat

_FIRST_CHUNK, _LARGEST_CHUNK = 1 << 8, 1 << 14  # indices made at a time: soon, then in bulk


@dataclass(frozen=True)
class Permutation:
    """The order of n samples."""

    n: int
    key: int | None  # None: the order of the dataset

    def index(self, i: int) -> int:
        """Return the sample at position ``i``."""
        return i if self.key is None else derive_ops.shuffle_index(self.key, self.n, i)

    def part(self, start: int, count: int, stride: int = 1) -> torch.Tensor:
        """Return the samples at positions start, start + stride, ...: ``count`` of them."""
        out = derive_ops.empty_like_keys(count, dtype=torch.int64)
        return self._fill(out, start, stride)

    def _fill(self, out: torch.Tensor, start: int, stride: int) -> torch.Tensor:
        if self.key is None:
            torch.arange(start, start + len(out) * stride, stride, out=out)
        else:
            derive_ops.fill_shuffle(out, self.key, self.n, start, stride)
        return out

    def write_part(self, function: str, out: torch.Tensor, start: int, count: int) -> torch.Tensor:
        """Write the samples at positions start, start + 1, ... to ``out``, which is checked."""
        tensors.check_out(function, "out", out, (count,), torch.int64)
        instead = "call it before the capture and copy the result"
        draw_ops.refuse_capture(function, out.device, instead)
        on_cuda = out.device.type == "cuda" and draw_ops.has_cuda
        if out.is_contiguous() and (on_cuda or out.device.type == "cpu"):
            return self._fill(out, start, 1)
        return out.copy_(self.part(start, count))


class SamplerIteration:
    """One iteration of a sampler: the indices of a rank, and how many of them were taken.

    Args:
        permutation: the order of the epoch.
        first: the global position at which the iteration begins.
        rank: this rank has the positions first + rank, and every world_size-th from there.
        world_size: the number of ranks that take turns.
        size: how many indices this rank yields.
    """

    def __init__(
        self, permutation: Permutation, first: int, rank: int, world_size: int, size: int
    ) -> None:
        self._permutation, self._size, self._stride = permutation, size, world_size
        self._first, self._start = first, first + rank
        self._taken_before = self._chunk_size = 0
        self._chunk: Iterator[int] = iter(())

    def __iter__(self) -> Iterator[int]:
        n, start, stride = self._permutation.n, self._start, self._stride
        inside = max(0, min(self._size, -(-(n - start) // stride)))
        done, size = 0, _FIRST_CHUNK
        while done < inside:
            size = min(size, inside - done)
            part = self._permutation.part(start + done * stride, size, stride)
            yield from self._count(part.tolist())
            done, size = done + size, min(4 * size, _LARGEST_CHUNK)
        for k in range(inside, self._size):  # from the front of the order again
            occurrence, i = divmod(start + k * stride, n)
            yield from self._count([Repeat(self._permutation.index(i), occurrence)])

    def _count(self, chunk: list[int]) -> Iterator[int]:
        self._taken_before += self._chunk_size
        self._chunk_size, self._chunk = len(chunk), iter(chunk)
        return self._chunk

    def position(self) -> int:
        """Return the global position from which all ranks would resume."""
        taken = self._taken_before + self._chunk_size - operator.length_hint(self._chunk)
        if taken == self._size:
            return self._permutation.n
        return min(self._first + taken * self._stride, self._permutation.n)
