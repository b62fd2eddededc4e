"""Objects that take the epoch instead of a key: samplers and datasets.

``register_generator`` accepts them beside generators, and ``reseed`` calls

- ``set_scope(task, epoch)`` if there is one (``fastseed.data.ShuffleSampler``), else
- ``set_epoch(epoch)``, after it has set ``seed`` of a
  ``torch.utils.data.DistributedSampler``: to 31 bits of the stream of this name that all ranks
  share, at (task, epoch) and step 0, so that a resumed epoch has the same order.

They have no state of their own: it follows from the coordinates.
"""

from __future__ import annotations

import sys
from typing import Any

SEED_BITS = 31  # which any library takes


def is_epoch_setter(candidate: object) -> bool:
    """Return whether an object has ``set_scope`` or ``set_epoch``."""
    return any(callable(getattr(candidate, name, None)) for name in ("set_scope", "set_epoch"))


class EpochSetter:
    """A sampler or dataset in the registry.

    Attributes:
        takes_seed: whether it is a DistributedSampler, whose seed all ranks share.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        module = sys.modules.get("torch.utils.data.distributed")
        self.takes_seed = module is not None and isinstance(target, module.DistributedSampler)

    def set(self, task: int, epoch: int, key: int) -> None:
        """Set task and epoch; ``key`` is that of its shared stream at (task, epoch, step 0)."""
        if self.takes_seed:
            self._target.seed = key & ((1 << SEED_BITS) - 1)
        if callable(getattr(self._target, "set_scope", None)):
            self._target.set_scope(task, epoch)
        else:
            self._target.set_epoch(epoch)
