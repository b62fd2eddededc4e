"""Objects that are told where the job is, rather than given a key: samplers, data sets.

``register_generator`` takes them beside generators, and ``reseed`` then calls

- ``set_scope(task, epoch)`` where there is one (:class:`~fastseed.data.ShuffleSampler`), else
- ``set_epoch(epoch)``, after setting ``seed`` if it is a
  :class:`torch.utils.data.DistributedSampler`: to 31 bits of the stream of this name that all ranks
  share, at (task, epoch) and step 0, so that a resumed epoch has the order it had.

They have no state: what they were told follows from the coordinates.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

SEED_BITS = 31  # which any library takes


def is_follower(candidate: Any) -> bool:
    """Whether it can be told where the job is."""
    return any(callable(getattr(candidate, name, None)) for name in ("set_scope", "set_epoch"))


def is_distributed_sampler(candidate: Any) -> bool:
    """Whether it is torch's, whose order is a function of ``seed`` plus epoch."""
    module = sys.modules.get("torch.utils.data.distributed")
    return module is not None and isinstance(candidate, module.DistributedSampler)


class Follower:
    """A sampler or data set in the registry. ``shared``: it takes a seed, the same on all ranks."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.shared = is_distributed_sampler(target)

    def follow(self, task: int, epoch: int, key: int) -> None:
        """Tell it; ``key`` is that of its stream at (task, epoch, step 0)."""
        if self.shared:
            self._target.seed = key & ((1 << SEED_BITS) - 1)
        if callable(getattr(self._target, "set_scope", None)):
            self._target.set_scope(task, epoch)
        else:
            self._target.set_epoch(epoch)

    def reseed(self, key: int) -> None:
        """A key alone tells it nothing: see :meth:`follow`."""

    def state(self) -> None:
        """What it was told follows from the coordinates."""

    def check(self, state: torch.Tensor) -> None:
        """See :class:`~fastseed.generators.adapters.Sink`."""
        raise ValueError("a sampler or data set has no state to put back")

    def load(self, state: torch.Tensor) -> None:
        """See :class:`~fastseed.generators.adapters.Sink`."""
        self.check(state)
