"""Which rank has which slots, and what ``SlotGradients`` asks of a way to collect gradients."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch.distributed as dist

from .._utils import StateDict


class SlotPlan(NamedTuple):
    """Which rank has which slots: in micro-step j rank r of w has slot j w + r, if it is below V.

    Attributes:
        slots: V, the number of slots of a step.
        rank: r, of this process in ``group``.
        ranks: w.
        group: the ranks that divide the data; None in a job of one process.
    """

    slots: int
    rank: int = 0
    ranks: int = 1
    group: dist.ProcessGroup | None = None

    @property
    def micro_steps(self) -> int:
        """Micro-steps of a step, on every rank."""
        return -(-self.slots // self.ranks)

    def slot(self, micro_step: int) -> int | None:
        """Return this rank's slot; None where it has none, in the last micro-step."""
        slot = micro_step * self.ranks + self.rank
        return slot if slot < self.slots else None

    def senders(self, micro_step: int) -> int:
        """Return how many ranks have a slot: the first ones, in the order of the slots."""
        return min(self.ranks, self.slots - micro_step * self.ranks)


class Collector(Protocol):
    """Takes the gradient of each slot out of the model, and leaves the mean at the end of a step.

    The calls of a step, on every rank:
    ``begin``, (``start``, ``collect``) for each micro-step, ``used``, ``finish``; or ``discard``
    at any point after ``begin``, where an error or a ``break`` has left the step. Forward and
    backward pass of a slot run between ``start`` and ``collect``. Sums are those of ``TreeSum``.
    """

    needs_every_rank: bool
    """True if a rank without a slot in the last micro-step has to run a forward and a backward pass
    there all the same, because they hold collectives. Its gradient must not be taken as a leaf."""

    def describe(self) -> StateDict:
        """Return what all ranks must have in common, in JSON's types: parameters by name."""

    def begin(self) -> None:
        """Check the model at the start of a step.

        Raises:
            RuntimeError: parameters were added, removed, replaced, frozen or moved since the
                collector was made, or one has a gradient already. Nothing has changed.
        """

    def start(self, micro_step: int) -> None:
        """Take the gradients of the next backward pass as the leaf of ``plan.slot(micro_step)``.

        If that is None there is no leaf: no backward pass follows, or with ``needs_every_rank`` one
        whose gradients are dropped.
        """

    def collect(self) -> None:
        """End the micro-step: all of its leaves are sent, and no parameter has a gradient.

        Raises:
            RuntimeError: there was no backward pass.
        """

    def used(self) -> list[bool]:
        """Return for each parameter whether it had a gradient in a slot of this rank's step.

        The list has the same length on all ranks; it may be empty where the answer is not needed.

        Raises:
            RuntimeError: on every rank: the passes of ranks do not fit together.
        """

    def finish(self, divisor: float, used: list[bool]) -> None:
        """Leave the sum of all leaves, divided once by ``divisor``, in the parameters' gradients.

        Args:
            divisor: V, or the sum of the slots' weights.
            used: what ``used`` returned, on any rank: the gradient of other parameters is None.
        """

    def discard(self) -> None:
        """Forget the leaves of a step that is left, so that no parameter has a gradient."""
