"""The sum of the leaves of a step, which is the same on any layout."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import torch

from .sums import nearest


class _Part(NamedTuple):
    total: torch.Tensor
    leaves: int
    borrowed: bool  # a leaf that may only be read, and not after ``keep``


class TreeSum:
    """Add tensors pairwise, in the order of their slots, with a partial sum for each power of two.

    Two partial sums of equally many leaves are added at once, so at most log2(V) + 1 are kept. At
    the end the rest is added from the newest to the oldest. Memory is used again by later sums.
    """

    def __init__(self) -> None:
        self.is_half = False  # the memory of ``take`` has a first leaf, to which a second is added
        self._parts: list[_Part] = []
        self._free: list[torch.Tensor] = []

    def push(self, leaf: torch.Tensor, leaves: int = 1, *, borrowed: bool = False) -> None:
        """Add the next leaf, which belongs to the sum from now on: it may be written.

        A ``borrowed`` leaf is only read, until the next call of ``keep``. The sum of ``leaves``
        leaves, a power of two of them from a multiple of it on, is pushed as one tensor.
        """
        part = _Part(leaf, leaves, borrowed)
        # Equal counts are added at once: the order of docs/spec/same-weights.md.
        while self._parts and self._parts[-1].leaves == part.leaves:
            part = self._add(self._parts.pop(), part)
        self._parts.append(part)

    def take(self, memory: torch.Tensor, *, is_last: bool) -> torch.Tensor:
        """Take a leaf that was written or, where ``is_half``, added to the leaf before it.

        Return the memory for the next leaf; the sum of all where it ``is_last``.
        """
        if not (is_last or self.is_half):
            self.is_half = True
            return memory
        self.push(memory, 2 if self.is_half else 1)
        self.is_half = False
        return self.result() if is_last else self.buffer(memory)

    def take_rest(self, memory: torch.Tensor) -> None:
        """Take the memory for the next leaf back, with half a pair in it or nothing."""
        if self.is_half:
            self.push(memory)
        else:
            self.recycle(memory)
        self.is_half = False

    def keep(self) -> None:
        """Copy the leaves that are still borrowed."""
        for i, (leaf, leaves, borrowed) in enumerate(self._parts):
            if borrowed:
                self._parts[i] = _Part(self.buffer(leaf).copy_(leaf), leaves, False)

    def result(self) -> torch.Tensor:
        """Return the sum of all leaves, of which there is one; the next leaf begins another sum."""
        self.keep()
        total = self._parts.pop()
        while self._parts:
            total = self._add(self._parts.pop(), total)
        return total.total

    def mean(self, divisor: Fraction) -> torch.Tensor:
        """Return the sum of all leaves, divided once, and start again.

        The divisor is rounded once to the dtype of the leaves. All NaN have the same bits.
        """
        total = self.result()
        number = nearest(divisor.numerator, divisor.denominator, 0, total.dtype)
        # by a tensor: CUDA kernels multiply by the reciprocal of a number
        total.div_(torch.tensor(number, dtype=total.dtype, device=total.device))
        return total.nan_to_num_(math.nan, math.inf, -math.inf)

    def buffer(self, like: torch.Tensor) -> torch.Tensor:
        """Return memory for a leaf, of any values; all leaves have one shape and dtype."""
        return self._free.pop() if self._free else torch.empty_like(like)

    def recycle(self, memory: torch.Tensor) -> None:
        """Take back what ``result`` or ``buffer`` returned."""
        self._free.append(memory)

    def _add(self, earlier: _Part, later: _Part) -> _Part:
        owned = [part.total for part in (earlier, later) if not part.borrowed]
        out = owned[0] if owned else self.buffer(earlier.total)
        torch.add(earlier.total, later.total, out=out)
        self._free += owned[1:]
        return _Part(out, earlier.leaves + later.leaves, False)
