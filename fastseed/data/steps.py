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
    uninterrupted run draws. Take a state where the parameters are saved, after the optimizer's
    step: it counts the batch that the loop has, not those that workers fetched ahead. After
    ``break``, another loop continues with the next step.

    Args:
        loader: a ``Loader``. Any other DataLoader becomes one with its settings; the argument is
            not changed. Under Accelerate, use
            ``fastseed.integrations.accelerate.AcceleratedJob.train`` instead.
        epochs: the number of epochs, [0, 2**32); None for a script that has the loop over epochs
            itself and calls ``in_epoch``.
        task: the task of ``reseed``, [0, 2**24).
        slots: None; or the number of micro-batches of a step, [1, 2**24), whatever the number of
            ranks, as for ``fastseed.elastic.SlotGradients``. In place of a batch the loop then
            yields an iterator of this rank's micro-batches, which must be exhausted before the next
            step; a rank may have none. The loader must have ``batch_size``, and ``shuffle=True``,
            its dataset's order, a ``ShuffleSampler`` or a ``MixtureSampler``.

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
