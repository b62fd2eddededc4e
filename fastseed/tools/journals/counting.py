"""Steps by the number that a log of the whole job has."""

from __future__ import annotations

import dataclasses

from ..._utils import validation
from ...data import Lineage

_MOST_EPOCHS = 2**32


def locate(lineage: Lineage, number: int) -> tuple[int, int]:
    """Return the epoch and the step of a step that is counted from 0 over all epochs.

    Steps that are skipped count, as they keep their numbers.

    Args:
        lineage: of the job.
        number: [0, 2**63).

    Raises:
        TypeError, ValueError: ``number`` is no integer or out of range; or the job has no such
            step.

    Examples:
        >>> import fastseed, torch
        >>> from fastseed.tools import journals
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=3)  # 3 steps each
        >>> journals.locate(steps.lineage(), 7)
        (2, 1)
    """
    function = "tools.journals.locate"
    validation.check_instance(function, "lineage", lineage, Lineage, "a Lineage")
    left = validation.check_int(function, "number", number, 0, 2**63 - 1)
    journal = dataclasses.replace(lineage.history, skips=())
    for epochs in journal.ranges_alike(range(_MOST_EPOCHS)):
        count = max((span.last for span in journal.spans(epochs.start)), default=0)
        if left < count * len(epochs):
            return epochs.start + left // count, left % count
        left -= count * len(epochs)
    rule = f"a step of the job, which has {number - left} of them"
    raise validation.value_error(function, "number", rule, number)
