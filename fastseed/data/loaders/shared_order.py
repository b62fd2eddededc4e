"""The order in which the positions of a loader count samples, and how ranks share it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ...seeder.seeder import Seeder
from ..order.samplers import samplers_in
from ..order.shuffle import ShuffleSampler
from ..order.slots import SlotSampler
from .seekable import Seekable

UNKNOWN = -1  # the length of an iterable dataset that has none


def is_iterable(loader: DataLoader[Any]) -> bool:
    """Return True if the dataset of a loader is iterable-style."""
    return isinstance(loader.dataset, IterableDataset)


def index_sampler_of(loader: DataLoader[Any]) -> Iterable[object]:
    """Return what yields the requests to the dataset: batches of indices, or indices."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


class SharedOrder(NamedTuple):
    """The order in which positions count samples, and how ranks share it."""

    name: str
    n: int
    drop_last: bool
    ranks: int = 1  # how many ranks take turns in it; 1: each rank reads all of it
    ranks_drop: bool = False  # ranks leave out what does not suffice for all of them
    starts_anywhere: bool = False  # not only where all ranks have taken as many samples
    ends_at_n: bool = True  # not so with a user's own sampler of batches
    least: int = 1  # samples that make a last batch

    def ends_at(self, position: int) -> bool:
        """Return True if no sample comes after this position, as far as is known."""
        return self.ends_at_n and self.n != UNKNOWN and position >= self.n

    def has_batch_after(self, position: int) -> bool:
        """Return True if this rank may have another batch after this position."""
        if not self.ends_at_n or self.n == UNKNOWN:
            return True
        left = max(self.n - position, 0)
        own = left // self.ranks if self.ranks_drop else -(-left // self.ranks)
        return own >= self.least


def order_of(loader: DataLoader[Any], seeder: Seeder | None = None) -> SharedOrder:
    """Return the order of a loader's samples; without a seeder the ranks may be wrong."""
    dataset, drop_last = loader.dataset, bool(loader.drop_last)
    job = 1 if seeder is None else seeder.data_world_size
    least = (loader.batch_size or 1) if drop_last else 1
    if is_iterable(loader):
        ranks = job if isinstance(dataset, Seekable) else 1
        name, n = type(dataset).__name__, _length(dataset)
        return SharedOrder(name, n, drop_last, ranks, starts_anywhere=True, least=least)
    batches = loader.batch_sampler
    if isinstance(batches, SlotSampler):  # a position is the same on any number of ranks
        name, n, drop_last = batches.order.describe_order(), batches.order.n, batches.drop_last
        least = batches.step_size if drop_last else 1
        return SharedOrder(name, n, drop_last, starts_anywhere=True, least=least)
    samplers = samplers_in(index_sampler_of(loader))
    drop_last = drop_last or any(getattr(s, "drop_last", False) is True for s in samplers)
    ends_at_n = batches is None or type(batches) is BatchSampler
    for sampler in samplers:
        if isinstance(sampler, ShuffleSampler):
            name, n = sampler.describe_order(), sampler.n
            ranks = job if sampler.world_size is None else sampler.world_size
        elif hasattr(sampler, "num_replicas"):
            name, n = type(sampler).__name__, _length(getattr(sampler, "dataset", dataset))
            ranks = int(sampler.num_replicas)
        else:
            continue
        ranks_drop = getattr(sampler, "drop_last", False) is True
        anywhere = sampler is samples_of(samplers[0]) and isinstance(sampler, ShuffleSampler)
        return SharedOrder(name, n, drop_last, ranks, ranks_drop, anywhere, ends_at_n, least)
    n = _length(samplers[-1] if ends_at_n else dataset)
    name = type(samplers[-1]).__name__
    return SharedOrder(name, n, drop_last, ends_at_n=ends_at_n, least=least)


def _length(data: Any) -> int:
    try:
        return len(data)
    except TypeError:
        return UNKNOWN


def samples_of(index_sampler: Any) -> Any:
    """Return the sampler behind torch's batches, or behind slots."""
    is_known = type(index_sampler) in (BatchSampler, SlotSampler)
    return index_sampler.sampler if is_known else index_sampler
