"""The arguments that make another DataLoader like one."""

from __future__ import annotations

import inspect
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from .sample_layout import is_iterable

Settings = dict[str, Any]  # the arguments of a DataLoader

OF_SAMPLERS = ("batch_size", "drop_last", "sampler", "batch_sampler", "shuffle")
_PARAMETERS = tuple(inspect.signature(DataLoader.__init__).parameters)[1:]


def settings_of(loader: DataLoader[Any]) -> Settings:
    """Return the arguments that make another DataLoader like ``loader``."""
    found = {name: getattr(loader, name) for name in _PARAMETERS if hasattr(loader, name)}
    sampler, batches = found.pop("sampler"), found.pop("batch_sampler")
    if is_iterable(loader):
        return found  # torch makes the samplers
    made_by_torch = type(batches) is BatchSampler and batches.sampler is sampler
    if batches is not None and not (made_by_torch and loader.batch_size is not None):
        for name in ("batch_size", "drop_last"):
            del found[name]
        return {**found, "batch_sampler": batches}
    order = {"shuffle": True} if _is_shuffle(sampler, loader) else {"sampler": sampler}
    return {**found, **order}


def _is_shuffle(sampler: Any, loader: DataLoader[Any]) -> bool:
    """Return True for the sampler that DataLoader makes of ``shuffle=True``."""
    dataset: Any = loader.dataset
    return (
        type(sampler) is RandomSampler
        and sampler.data_source is dataset
        and sampler.generator is loader.generator
        and not sampler.replacement
        and sampler.num_samples == len(dataset)
    )
