"""The loop over epochs and batches that reseeds, and whose state says where it is."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from .layout import SlotSource
from .limits import Limits
from .step_loop import StepLoop


def steps(
    loader: DataLoader[Any],
    epochs: int | None = None,
    *,
    task: int = 1,
    total: int | None = None,
    steps_per_epoch: int | None = None,
    accumulate: int | None = None,
    slots: int | SlotSource | None = None,
    check: bool = True,
) -> StepLoop:
    """Iterate the batches of all epochs as (epoch, step, batch), and reseed before each step.

    It calls ``reseed(task, epoch, step)``. Take a state after the optimizer's
    step: it counts the batch that the loop has, not those that workers fetched ahead. After
    ``break``, another loop continues with the next step.

    Args:
        loader: a ``Loader``, or any other DataLoader, which is not changed. Under Accelerate, call
            ``fastseed.integrations.accelerate.attach`` instead.
        epochs: the number of epochs, [0, 2**32); None: those of ``total``, or of a script that has
            the loop over epochs itself and calls ``in_epoch``.
        task: the task of ``reseed``, [0, 2**24).
        total: the number of steps of all epochs, with which the loop ends, [1, 2**64).
        steps_per_epoch: the number of steps after which an epoch ends, if it has more, [1, 2**64).
        accumulate: the number of batches of a step, [1, 2**64): the loop yields a list of them, for
            one optimizer's step. The last list of an epoch may be shorter, unless ``drop_last``.
        slots: None; or the ``fastseed.elastic.SlotGradients`` that take the micro-batches of a
            step; or only their number on all ranks, [1, 2**24), which ranks then have in blocks. In
            place of a batch the loop yields an iterator of this rank's micro-batches, if any, which
            must be exhausted before the next step. The loader must have ``batch_size``, and
            ``shuffle=True``, its dataset's order, a ``ShuffleSampler`` or a ``MixtureSampler``.
        check: compare the order, its length and layout, the seed of a ``DistributedSampler`` and
            the indices of a ``Subset`` with a rank that began this loop before. No rank waits.

    Returns:
        The loop over the steps that are left; ``len()`` is their number. ``in_epoch(epoch)`` has
        those of one epoch. ``epoch`` and ``step`` are those of the next step (at the end of an
        epoch one after its last), ``loader`` is the ``Loader``, ``dataset`` its dataset.

    Raises:
        TypeError, ValueError: an argument has the wrong type or value; or, from the loop, an epoch
            has no step, as with ``drop_last``.
        RuntimeError: from the loop, a rank differs in what ``check`` compares.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=1, task=1)
        >>> for epoch, step, batch in steps:
        ...     print(epoch, step, batch.tolist())  # train here
        ...     if step == 1:
        ...         saved = steps.state_dict()
        0 0 [2, 7, 6, 4]
        0 1 [0, 3, 5, 8]
        0 2 [9, 1]
        >>> resumed = fastseed.data.steps(batches, epochs=1, task=1)
        >>> resumed.load_state_dict(saved)  # in another process, on other ranks
        >>> [(epoch, step, batch.tolist()) for epoch, step, batch in resumed]
        [(0, 2, [9, 1])]
    """
    ends = {"epochs": epochs, "total": total, "steps_per_epoch": steps_per_epoch}
    limits = Limits.checked("data.steps", **ends, accumulate=accumulate)
    return StepLoop(loader, limits, task, slots, check)
