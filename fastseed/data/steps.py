"""The loop over epochs and batches that reseeds, and whose state says where it is."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from .step_loop import StepLoop


def steps(
    loader: DataLoader[Any],
    epochs: int | None = None,
    *,
    task: int = 1,
    slots: int | None = None,
) -> StepLoop:
    """Iterate the batches of all epochs as (epoch, step, batch), each step in its own scope.

    Before each step it calls ``reseed(task, epoch, step)``, so a run that resumes draws what the
    uninterrupted run draws, and what the body draws has no effect on later steps. ``step``
    counts the steps of an epoch from 0; after resuming it continues, with any number of ranks.

    A state belongs to the end of a step: take it where the parameters are saved, after the
    optimizer's step. It contains the state of the loader, and counts the batch that the loop has,
    not those that workers fetched ahead. After ``break``, another loop continues with the next
    step.

    Args:
        loader: a ``Loader``. Any other DataLoader becomes one with its settings; the argument is
            not changed. Under Accelerate, use
            ``fastseed.integrations.accelerate.AcceleratedJob.train`` instead.
        epochs: the number of epochs, [0, 2**32); None for a script that has the loop over epochs
            itself and calls ``in_epoch``.
        task: the task of ``reseed``, [0, 2**24).
        slots: None; or the number of micro-batches of a step, [1, 2**24), which
            ``fastseed.elastic.SlotGradients`` sums, whatever the number of ranks. Slot s of step t
            then has the ``batch_size`` samples from position (t * slots + s) * batch_size of the
            order on, and rank r of w has slots r, r + w, r + 2 * w, and so on. In place of a batch
            the loop yields an iterator of this rank's micro-batches, which must be exhausted before
            the next step; a rank may have none. With ``drop_last``, of the loader or of its
            sampler, an incomplete last step is left out; without, it is filled up with samples from
            the front of the order, of type ``Repeat``. The loader must have ``batch_size``, and
            ``shuffle=True``, its dataset's order, a ``ShuffleSampler`` or a ``MixtureSampler``.

    Returns:
        The loop. ``iter()`` of it yields the steps; ``len()`` is the number of steps of an epoch on
        this rank, for schedulers. Its attributes ``epoch`` and ``step`` are those of the next step
        (``step`` may be one after the last step of the epoch), ``loader`` is the ``Loader``, and
        ``dataset`` that of the loader. Its methods: ``in_epoch(epoch)``, ``state_dict()``,
        ``load_state_dict(state)``, ``lineage()``, ``quarantine(samples)``, ``skip(...)``.

    Raises:
        TypeError, ValueError: an argument has the wrong type or is out of range; or ``slots`` is
            given, and ``loader`` is iterable-style or has another sampler; or, from the loop, an
            epoch has no step, as with ``drop_last`` and fewer samples than a batch.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=2, task=1)
        >>> for epoch, step, batch in steps:
        ...     print(epoch, step, batch.tolist())  # train here
        ...     if (epoch, step) == (0, 1):
        ...         saved = steps.state_dict()
        0 0 [2, 7, 6, 4]
        0 1 [0, 3, 5, 8]
        0 2 [9, 1]
        1 0 [6, 9, 5, 2]
        1 1 [7, 4, 8, 1]
        1 2 [0, 3]
        >>> resumed = fastseed.data.steps(batches, epochs=2, task=1)
        >>> resumed.load_state_dict(saved)  # in another process, on other ranks
        >>> epoch, step, batch = next(iter(resumed))
        >>> epoch, step, batch.tolist()
        (0, 2, [9, 1])
    """
    return StepLoop(loader, epochs, task, slots)
