"""The sum of the leaves of a step, defined once, whoever adds (docs: the normative rule)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class TreeSum:
    """Add tensors pairwise, in the order of their slots, with a partial sum for each power of two.

    Leaf s is pushed s-th. Two partial sums of equally many leaves are added at once, so at most
    log2(V) + 1 tensors are kept. At the end the rest is added from the newest to the oldest. Each
    addition is rounded once, in the dtype of the leaves, so the bits depend on the leaves alone.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[torch.Tensor, int]] = []

    def push(self, leaf: torch.Tensor) -> None:
        """Add the next leaf, which belongs to the sum from now on: it may be written."""
        leaves = 1
        while self._parts and self._parts[-1][1] == leaves:
            earlier, _ = self._parts.pop()
            leaf, leaves = earlier.add_(leaf), 2 * leaves
        self._parts.append((leaf, leaves))

    def result(self) -> torch.Tensor:
        """Return the sum of all leaves, and start anew.

        Raises:
            IndexError: no leaf was pushed.
        """
        total, _ = self._parts.pop()
        while self._parts:
            earlier, _ = self._parts.pop()
            total = earlier.add_(total)
        return total
