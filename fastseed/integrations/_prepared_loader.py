"""The batches of a loader that Accelerate prepared, in the order of the master seed."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler

from .._utils import StateDict, validation
from ..data import Loader, ShuffleSampler
from ..data.history import from_json, to_json
from ..data.loader.torch_loader import settings_of
from ..data.order.samplers import RANDOM_SAMPLERS, samplers_in
from ..data.worker.scope import required_scope
from . import _common

if TYPE_CHECKING:
    from accelerate.data_loader import DataLoaderShard

_NAME = "integrations.accelerate"
_ORDER = "accelerate.order"  # the stream of samplers with a generator


def check_prepared(function: str, loader: DataLoaderShard) -> None:
    """Raise an error unless ``accelerator.prepare`` made ``loader`` of a map-style dataset."""
    module = _common.import_framework("accelerate.data_loader", "accelerate")
    rule = "what accelerator.prepare returned for a torch DataLoader, not dispatched"
    validation.check_instance(function, "loader", loader, module.DataLoaderShard, rule)
    if isinstance(loader.batch_sampler, module.SkipBatchSampler) or loader.skip_batches:
        rule = "the one from before skip_first_batches: load_state has restored the position"
        raise validation.value_error(function, "loader", rule, loader)
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        rule = "of a map-style dataset, in batches; iterate the loader itself otherwise"
        raise validation.value_error(function, "loader", rule, loader.dataset)


def resumable(loader: DataLoaderShard) -> Loader:
    """Return a loader of the batches of a prepared one, in the scope of ``reseed``."""
    settings = settings_of(loader.base_dataloader)
    for name in ("batch_size", "drop_last", "shuffle", "sampler", "batch_sampler"):
        settings.pop(name, None)
    return Loader(**settings, batch_sampler=_division(loader.batch_sampler))


def _division(share: Any) -> Division:
    """Return the batches of this rank; ``share`` is Accelerate's shard, or the batches of one."""
    is_shard = hasattr(share, "num_processes")
    batches: Any = share.batch_sampler if is_shard else share
    if type(batches) is BatchSampler and isinstance(batches.sampler, RANDOM_SAMPLERS):
        batches = BatchSampler(_keyed(batches.sampler), batches.batch_size, batches.drop_last)
        if is_shard:
            share = copy.copy(share)
            share.batch_sampler = batches
        else:
            share = batches
    return Division(batches, share, share.num_processes if is_shard else 1)


def _keyed(sampler: Any) -> Any:
    """Return a sampler like one of torch's, which may have Accelerate's generator, of the epoch."""
    is_random = isinstance(sampler, RandomSampler) and not sampler.replacement
    if is_random and sampler.num_samples == len(sampler.data_source):  # that of shuffle=True
        return ShuffleSampler(sampler.num_samples, rank=0, world_size=1)
    sampler = copy.copy(sampler)
    sampler.generator = None  # the loader lends it one
    return sampler


class Division(BatchSampler):
    """The batches of this rank, which ``share`` takes from batches that are equal on all ranks.

    Positions count batches over ``num_replicas`` ranks, since a framework may fill up the last.
    """

    def __init__(self, batches: Iterable[int], share: BatchSampler, num_replicas: int) -> None:
        self.sampler, self.num_replicas, self._share = batches, num_replicas, share
        self.batch_size, self.drop_last = share.batch_size, bool(share.drop_last)

    def __len__(self) -> int:
        return len(self._share)

    def __iter__(self) -> Iterator[list[int]]:
        scope = required_scope(_NAME)
        key = _common.order_key(_NAME, _ORDER, scope.task, scope.epoch) % 2**64
        for sampler in samplers_in(self.sampler):
            generator = getattr(sampler, "generator", None)
            if isinstance(generator, torch.Generator) and not isinstance(sampler, RANDOM_SAMPLERS):
                generator.manual_seed(key)  # it continues from epoch to epoch, or differs by rank
        return iter(self._share)


def division_of(loader: DataLoaderShard) -> dict[str, int]:
    """Return the ranks, the samples of a step over all of them (0: they vary), and the steps."""
    share = loader.batch_sampler
    ranks = getattr(share, "num_processes", 1)
    samples = loader.total_batch_size if share.batch_size else 0
    return {"ranks": ranks, "samples": samples, "length": len(loader)}


def on_these_ranks(function: str, state: StateDict, loader: DataLoaderShard) -> StateDict:
    """Return the state of the steps with its position in steps as large as those of ``loader``."""
    before, now = state["division"], division_of(loader)
    if before == now:
        return dict(state["steps"])
    text = state["steps"]["journal"]
    history = from_json(function, "state['steps']['journal']", text)
    done = history.position_at(*history.point) // before["ranks"]
    samples = before["samples"]
    if done >= before["length"]:
        done = now["length"]
    elif samples and now["samples"] and done * samples % now["samples"] == 0:
        done = done * samples // now["samples"]
    else:
        raise RuntimeError(
            f"fastseed.{function}: the loaded state is after {done} steps of {samples} samples, "
            f"where no step of {now['samples']} samples begins: use as many ranks as before"
        )
    moved = {"position": done * now["ranks"], "ranks": now["ranks"]}
    entry = history.entries[-1]._replace(epoch=history.epoch, step=history.step, **moved)
    history = history.with_entry(entry, history.latest_order)
    return {**state["steps"], "journal": to_json(history), "read": ""}
