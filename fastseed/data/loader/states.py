"""What a loader's positions count, how its batches cut it, and the state that says where it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ..._utils import StateDict, validation
from ...derivation import scopes
from ...seeder.seeder import Seeder
from ..layout import UNKNOWN, StepLayout
from ..order.samplers import RANDOM_SAMPLERS, ShuffleSampler, SlotSampler, samplers_in
from ..order.spec import OrderSpec, OtherSpec
from .seekable import Seekable

_LIMITS = {
    "master_seed": (0, scopes.MAX_MASTER),
    "task": (0, scopes.MAX_TASK),
    "epoch": (0, scopes.MAX_EPOCH),
    "position": (0, 2**63 - 1),
    "over": (0, 1),
}


def is_iterable(loader: DataLoader[Any]) -> bool:
    """Return True if the dataset of a loader is iterable-style."""
    return isinstance(loader.dataset, IterableDataset)


def index_sampler_of(loader: DataLoader[Any]) -> Iterable[object]:
    """Return what yields the requests to the dataset: batches of indices, or indices."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def sampler_of(loader: DataLoader[Any]) -> Any:
    """Return the sampler behind torch's batches, or behind slots."""
    sampler: Any = index_sampler_of(loader)
    return sampler.sampler if type(sampler) in (BatchSampler, SlotSampler) else sampler


def samplers_of(loader: DataLoader[Any]) -> list[object]:
    """Return what yields the requests to the dataset, and the samplers in it."""
    return samplers_in(index_sampler_of(loader))


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
    samplers = samplers_of(loader)
    drop_last = drops or any(getattr(s, "drop_last", False) is True for s in samplers)
    is_regular = batches is None or type(batches) is BatchSampler
    if type(batches) is BatchSampler:
        size, drops = batches.batch_size, bool(batches.drop_last)
    for sampler in samplers:
        if isinstance(sampler, ShuffleSampler):
            ranks = job if sampler.world_size is None else sampler.world_size
            layout = StepLayout(sampler.n, size, ranks, 0, drops, sampler.drop_last)
            spec, is_first = sampler.spec, sampler is sampler_of(loader)
            is_plain = type(sampler).__iter__ is ShuffleSampler.__iter__
            is_of_job = is_plain and sampler.task is None and sampler.epoch is None
            if not (is_first and is_regular and is_of_job):
                spec = OtherSpec(spec.describe(), layout.n)
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
    return OtherSpec(type(source).__name__, layout.n)


def _length(data: Any) -> int:
    try:
        return len(data)
    except TypeError:
        return UNKNOWN


def make_state(loader: DataLoader[Any], *numbers: int) -> StateDict:
    """Return a state; ``numbers`` are master seed, task, epoch, position and over."""
    return {**_order_fields(loader), **dict(zip(_LIMITS, numbers, strict=True))}


def parse(function: str, loader: DataLoader[Any], state: StateDict) -> StateDict:
    """Return a state with Python's integers; TypeError or ValueError if it is not this loader's."""
    check_resumable(function, loader)
    own = _order_fields(loader)
    others = {*_LIMITS, "dataset"} if has_dataset_state(loader) else set(_LIMITS)
    check_state(function, "loader", state, own, others)
    numbers = {
        field: validation.check_int(function, f"state[{field!r}]", state[field], *bounds)
        for field, bounds in _LIMITS.items()
    }
    return {**state, **own, **numbers}


def check_resumable(function: str, loader: DataLoader[Any]) -> None:
    """Raise TypeError or ValueError if no state says where the loader is."""
    if not loader.in_order:
        rule = "True, so that the number of batches says which were delivered"
        raise validation.value_error(function, "in_order", rule, False)
    for sampler in samplers_of(loader):
        if isinstance(sampler, RANDOM_SAMPLERS) and sampler.generator:
            rule = "without a generator, whose state is lost: use shuffle=True"
            raise validation.value_error(function, "sampler", rule, sampler)
    if not has_dataset_state(loader):
        return
    dataset = loader.dataset
    if not (hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")):
        rule = "map-style, a Seekable, or have seek(position), or a state_dict"
        raise validation.type_error(function, "dataset", rule, dataset)
    if loader.num_workers:
        rule = "0 for an iterable dataset without seek(position)"
        raise validation.value_error(function, "num_workers", rule, loader.num_workers)


def has_dataset_state(loader: DataLoader[Any]) -> bool:
    """Return True if the dataset itself says where it is."""
    return is_iterable(loader) and not isinstance(loader.dataset, Seekable)


def _order_fields(loader: DataLoader[Any]) -> dict[str, str | int]:
    samples = layout_of(loader)
    numbers = {"n": samples.layout.n, "drop_last": int(samples.drop_last)}
    return {"format": "fastseed.loader", "version": 1, "order": samples.spec.describe(), **numbers}


def check_state(
    function: str,
    noun: str,
    state: StateDict,
    expected: Mapping[str, str | int],
    others: Collection[str],
) -> None:
    """Raise TypeError or ValueError unless ``state`` has ``expected`` and the fields ``others``."""
    validation.check_instance(function, "state", state, dict, "a dict from state_dict()")
    fields = sorted({*expected, *others})
    if set(state) != set(fields):
        rule = f"a dict of {', '.join(fields)}, from the state_dict() of a {noun}"
        raise validation.value_error(function, "state", rule, list(state))
    for field, value in expected.items():
        given = state[field]
        # Tensors are never read, since their memory may have been freed.
        is_of_type = isinstance(given, (type(value), np.integer)) and not isinstance(given, bool)
        if not is_of_type or given != value:
            rule = f"{value!r}, as for this {noun}"
            raise validation.value_error(function, f"state[{field!r}]", rule, given)
