"""The share of one rank in batches that a framework divides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch.utils.data import BatchSampler

from ...derivation import context, coordinates, streams
from ..order.samplers import RANDOM_SAMPLERS, samplers_in
from ..worker.scope import IterationScope, current_scope

_NAME = "accelerate.order"


class Division(BatchSampler):
    """The batches of this rank, taken by a framework from batches that are the same on all ranks.

    A loader notifies the samplers inside of the epoch and lends torch's their generator. Positions
    count batches over ``num_replicas`` ranks, since the framework may fill up the last ones.

    Args:
        batches: the sampler of the batches of all ranks.
        share: iterates them and yields those of this rank.
        num_replicas: the number of ranks.
    """

    def __init__(self, batches: Iterable[int], share: BatchSampler, num_replicas: int) -> None:
        self.sampler, self.num_replicas, self._share = batches, num_replicas, share
        self.batch_size, self.drop_last = share.batch_size, bool(share.drop_last)

    def __len__(self) -> int:
        return len(self._share)

    def __iter__(self) -> Iterator[list[int]]:
        scope: IterationScope = current_scope()  # type: ignore[assignment]  # a loader's
        at = coordinates.Coordinates(scope.task, scope.epoch, 0)
        seed = context.current("data.Division").master_seed
        key = streams.stream(seed, at, _NAME, coordinates.SHARED).key(0) & coordinates.MAX_MASTER
        for sampler in samplers_in(self.sampler):
            generator = getattr(sampler, "generator", None)
            if isinstance(generator, torch.Generator) and not isinstance(sampler, RANDOM_SAMPLERS):
                generator.manual_seed(key)  # it continues from epoch to epoch, or differs by rank
        return iter(self._share)
