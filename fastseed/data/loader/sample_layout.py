"""How a loader's batches cut its order: what positions count, and where an epoch ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ...seeder.seeder import Seeder
from ..layout import UNKNOWN, StepLayout
from ..order.nested import samplers_in
from ..order.samplers import ShuffleSampler, SlotSampler
from ..order.spec import OTHER, OrderSpec
from .seekable import Seekable


def is_iterable(loader: DataLoader[Any]) -> bool:
    """Return True if the dataset of a loader is iterable-style."""
    return isinstance(loader.dataset, IterableDataset)


def index_sampler_of(loader: DataLoader[Any]) -> Iterable[object]:
    """Return what yields the requests to the dataset: batches of indices, or indices."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def samples_of(index_sampler: Any) -> Any:
    """Return the sampler behind torch's batches, or behind slots."""
    is_known = type(index_sampler) in (BatchSampler, SlotSampler)
    return index_sampler.sampler if is_known else index_sampler


class SampleLayout(NamedTuple):
    """The order whose samples positions count, and its cut into the steps of a loader."""

    spec: OrderSpec
    layout: StepLayout
    drop_last: bool  # the loader or a sampler leaves out what is incomplete
    starts_anywhere: bool = False  # not only where all ranks have taken as many samples
    is_regular: bool = True  # each batch has the size that the layout says; the order ends at n

    @property
    def ranks(self) -> int:
        """How many positions one sample of this rank stands for."""
        return 1 if self.layout.slots else self.layout.ranks

    def ends_at(self, position: int) -> bool:
        """Return True if no sample comes after this position, as far as is known."""
        return self.is_regular and self.layout.n != UNKNOWN and position >= self.layout.n

    def has_batch_after(self, position: int) -> bool:
        """Return True if this rank may have another batch after this position."""
        return not self.is_regular or self.layout.steps_left(position) > 0


def layout_of(loader: DataLoader[Any], seeder: Seeder | None = None) -> SampleLayout:
    """Return the layout of a loader's samples; without a seeder the ranks may be wrong."""
    dataset, batches = loader.dataset, loader.batch_sampler
    job = 1 if seeder is None else seeder.data_world_size
    drops, size = bool(loader.drop_last), loader.batch_size or 1
    if is_iterable(loader):
        ranks = job if isinstance(dataset, Seekable) else 1
        layout = StepLayout(_length(dataset), size, ranks, drop_last=drops)
        return SampleLayout(_unknown(dataset, layout), layout, drops, starts_anywhere=True)
    if isinstance(batches, SlotSampler):
        order = batches.order
        world_size = 1 if seeder is None else order._rank_and_size()[1]
        layout = batches.layout._replace(ranks=world_size)
        return SampleLayout(order.spec, layout, batches.drop_last, starts_anywhere=True)
    samplers = samplers_in(index_sampler_of(loader))
    drop_last = drops or any(getattr(s, "drop_last", False) is True for s in samplers)
    is_regular = batches is None or type(batches) is BatchSampler
    if type(batches) is BatchSampler:
        size, drops = batches.batch_size, bool(batches.drop_last)
    for sampler in samplers:
        if isinstance(sampler, ShuffleSampler):
            ranks = job if sampler.world_size is None else sampler.world_size
            layout = StepLayout(sampler.n, size, ranks, 0, drops, sampler.drop_last)
            spec, is_first = sampler.spec, sampler is samples_of(samplers[0])
            if not (is_first and is_regular and _follows_reseed(sampler)):
                spec = OrderSpec(OTHER, spec.describe(), layout.n)
            return SampleLayout(spec, layout, drop_last, is_first, is_regular)
        if hasattr(sampler, "num_replicas"):
            n = _length(getattr(sampler, "dataset", dataset))
            leaves_out = getattr(sampler, "drop_last", False) is True
            layout = StepLayout(n, size, int(sampler.num_replicas), 0, drops, leaves_out)
            spec = _unknown(sampler, layout)
            return SampleLayout(spec, layout, drop_last, is_regular=is_regular)
    layout = StepLayout(_length(samplers[-1] if is_regular else dataset), size, drop_last=drops)
    spec = _unknown(samplers[-1], layout)
    return SampleLayout(spec, layout, drop_last, is_regular=is_regular)


def _unknown(source: object, layout: StepLayout) -> OrderSpec:
    return OrderSpec(OTHER, type(source).__name__, layout.n)


def _follows_reseed(sampler: ShuffleSampler) -> bool:
    """Return True if the order of a sampler is its specification's in the scope of the job."""
    is_own = type(sampler).__iter__ is not ShuffleSampler.__iter__
    return not is_own and sampler.task is None and sampler.epoch is None


def _length(data: Any) -> int:
    try:
        return len(data)
    except TypeError:
        return UNKNOWN
