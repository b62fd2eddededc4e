"""What takes a seed or the epoch by a call instead of a key: functions, samplers and datasets.

``register_generator`` accepts samplers and datasets beside generators, and ``reseed`` calls

- ``set_scope(task, epoch)`` if there is one (``fastseed.data.ShuffleSampler``), else
- ``set_epoch(epoch)``, after it has set ``seed`` of a
  ``torch.utils.data.DistributedSampler``: to 31 bits of the stream of this name that all ranks
  share, at (task, epoch) and step 0, so that a resumed epoch has the same order.

They have no state of their own: it follows from the coordinates.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from ..derivation.streams import Stream

BITS = (31, 32, 63, 64, 128)
"""The sizes of seeds that a callable can be registered with."""
SEED_BITS = 31  # which any library takes


class SeedFunction:
    """``f(seed: int)``, called with a seed of ``bits`` bits."""

    def __init__(self, function: Callable[[int], object], bits: int = 31) -> None:
        self._function = function
        self.bits = bits

    def reseed(self, stream: Stream) -> None:
        """Call the function with a seed of ``stream``; its exceptions are not caught."""
        self._function(stream.seed(self.bits))

    def state(self) -> None:
        """Return None: the state behind a function cannot be read."""

    def parse_state(self, state: torch.Tensor) -> NoReturn:
        raise ValueError("a callable has no state to restore")

    def save(self) -> None:
        """Return None: there is nothing to restore."""

    def restore(self, saved: None) -> None:
        """Do nothing."""


def is_epoch_setter(candidate: object) -> bool:
    """Return whether an object has ``set_scope`` or ``set_epoch``."""
    return any(callable(getattr(candidate, name, None)) for name in ("set_scope", "set_epoch"))


def tell_epoch(target: Any, task: int, epoch: int) -> None:
    """Call ``set_scope`` or ``set_epoch`` of a sampler or dataset, if it has one."""
    if callable(getattr(target, "set_scope", None)):
        target.set_scope(task, epoch)
    elif callable(getattr(target, "set_epoch", None)):
        target.set_epoch(epoch)


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
        tell_epoch(self._target, task, epoch)
