"""A job under Hugging Face Accelerate: a stream for each step and phase, and exact resumption.

accelerator = Accelerator()
job = AcceleratedJob(accelerator, master_seed=42)      # before the model is built
model, optimizer, batches, scheduler = accelerator.prepare(model, optimizer, batches, scheduler)
for epoch in range(job.epoch, epochs):
    for step, batch in job.train(batches, epoch): ...  # was: enumerate(batches)
    with job.validate(epoch): ...
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler

from .._utils import StateDict, validation
from ..data import Loader, ShuffleSampler
from ..data import steps as make_steps
from ..data.journal import from_json, to_json
from ..data.loader.states import check_state
from ..data.loader.torch_loader import settings_of
from ..data.order.samplers import RANDOM_SAMPLERS, samplers_in
from ..data.steps import StepLoop
from ..data.worker.scope import required_scope
from ..seeder.seeder import current_seeder
from . import _common
from ._common import INIT, TRAIN, VALIDATE, move_to, run_in_task

if TYPE_CHECKING:
    from accelerate import Accelerator
    from accelerate.data_loader import DataLoaderShard

FORMAT = "fastseed.accelerate"
VERSION = 1

_NAME = "integrations.accelerate.AcceleratedJob"
_ORDER = "accelerate.order"  # the stream of samplers with a generator


class AcceleratedJob:
    """Reseed the steps and phases of a job under ``accelerate``, and save where it is.

    Prepare everything as Accelerate's documentation says, torch's DataLoaders included, and iterate
    ``train(loader, epoch)`` in place of ``enumerate(loader)``. The order of the data and all random
    numbers follow the master seed; the rest is Accelerate's.

    The constructor calls ``fastseed.init``, unless the script has, with the accelerator's rank and
    world size, and ``reseed(task=0)``. ``save_state`` then keeps where the job is, and
    ``load_state`` continues after that step. Use neither ``set_seed`` nor ``skip_first_batches``.

    If the accelerator has no ``data_seed``, its ``SeedableRandomSampler`` gets one from the master
    seed. The job and its loop belong to one thread, as the accelerator does.

    Args:
        accelerator: before anything that shuffles is prepared.
        master_seed: for ``init``; None: the one of the script, or a random one.

    Raises:
        TypeError, ValueError: an argument is wrong; or the accelerator's ``rng_types`` would give
            every rank the generators of rank 0.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        master_seed: int | None = None,
    ) -> None:
        kind = _common.import_framework("accelerate", "accelerate").Accelerator
        validation.check_instance(
            _NAME, "accelerator", accelerator, kind, "an accelerate.Accelerator"
        )
        _check_rng_types(accelerator)
        ranks = accelerator.process_index, accelerator.num_processes
        _common.ensure_seeder(_NAME, master_seed, *ranks)
        move_to(INIT, 0)
        config = accelerator.dataloader_config
        if config.data_seed is None:
            key = _common.order_key(_NAME, _ORDER, INIT)
            config.data_seed = key % 2**31
        self._accelerator = accelerator
        self._loader: DataLoaderShard | None = None  # of _steps
        self._steps: StepLoop | None = None
        self._loaded: StateDict | None = None
        accelerator.register_for_checkpointing(self)

    @property
    def epoch(self) -> int:
        """The epoch of the next training step, also after ``load_state``."""
        if self._loaded is not None:
            return int(self._loaded["epoch"])
        return 0 if self._steps is None else self._steps.epoch

    def train(self, loader: DataLoaderShard, epoch: int) -> Iterator[tuple[int, Any]]:
        """Iterate an epoch as ``enumerate(loader)`` does, each step in its own scope.

        Before each step it calls ``reseed(1, epoch, step)``. After ``load_state`` or
        ``break`` it begins after the step that was done last, if that was in this epoch.

        Args:
            loader: what ``accelerator.prepare`` returned for a torch DataLoader of a map-style
                dataset. ``shuffle=True`` has the order of a ``ShuffleSampler``; other samplers
                are kept, and draw from streams that all ranks share.
            epoch: [0, 2**32).

        Raises:
            TypeError, ValueError: an argument is invalid.
            RuntimeError: the loaded state is of another epoch that is not over; or on these ranks
                no batch begins where it ends.
        """
        function = f"{_NAME}.train"
        _check_prepared(function, loader)
        if self._steps is None or self._loader is not loader:
            batches = _resumable(loader)
            self._steps = make_steps(batches, task=TRAIN)
            self._loader = loader
        if self._loaded is not None:
            if self._loaded["steps"]:
                here = _on_these_ranks(function, self._loaded, loader)
                self._steps.load_state_dict(here)
            self._loaded = None
        history = self._steps.lineage().history
        done = history.position_at(*history.point) // history.entries[-1].ranks
        done = done if epoch == history.epoch and history.step else 0
        return self._train(loader, self._steps.in_epoch(epoch), done)

    def _train(
        self, loader: DataLoaderShard, batches: Iterable[tuple[int, int, Any]], done: int
    ) -> Iterator[tuple[int, Any]]:
        send = _common.import_framework("accelerate.utils", "accelerate").send_to_device
        is_non_blocking = self._accelerator.dataloader_config.non_blocking
        loader.begin()  # so accumulate() and gather_for_metrics() know where it ends
        try:
            for _, step, batch in batches:
                done += 1
                loader.end_of_dataloader = done == len(loader)
                if loader.device is not None:
                    batch = send(batch, loader.device, non_blocking=is_non_blocking)
                yield step, batch
        finally:
            loader.end()
        if done != len(loader):
            raise RuntimeError(
                f"fastseed.{_NAME}.train: len(loader) must be the number of its batches, which is "
                f"{done}, got {len(loader)}: the last accumulation may be lost"
            )

    def validate(self, epoch: int = 0) -> contextlib.AbstractContextManager[None]:
        """Run a block in the validation task, 2; for another one call ``run_in_task``."""
        return run_in_task(VALIDATE, epoch)

    def state_dict(self) -> StateDict:
        """Return where training is: after the step that it is in. The state of any rank serves all.

        Between two updates of an accumulation it warns: Accelerate saves no gradients.
        """
        if self._loaded is not None:
            return dict(self._loaded)
        seeder, steps, loader = current_seeder(f"{_NAME}.state_dict"), self._steps, self._loader
        state = {
            "format": FORMAT,
            "version": VERSION,
            "master_seed": seeder.master_seed,
            "epoch": self.epoch,
            "accumulated": self._accelerator.step,
            "steps": {} if steps is None else steps.state_dict(),
            "division": {} if loader is None else _division_of(loader),
        }
        if not self._accelerator.sync_gradients:
            warnings.warn(
                f"fastseed.{_NAME}: save_state was called inside an accumulation, and Accelerate "
                "saves no gradients: call it where accelerator.sync_gradients is True",
                stacklevel=2,
            )
        return state

    def load_state_dict(self, state: StateDict) -> None:
        """Continue after the step in which ``state`` was taken.

        Args:
            state: what ``state_dict`` returned, on any rank.

        Raises:
            TypeError, ValueError: ``state`` is of another version or master seed; nothing changes.
        """
        function = f"{_NAME}.load_state_dict"
        master_seed = current_seeder(function).master_seed
        own: dict[str, str | int] = {"format": FORMAT, "version": VERSION}
        entries = "master_seed", "epoch", "accumulated", "steps", "division"
        check_state(function, "job", state, own, entries)
        saved = state["master_seed"]
        if saved != master_seed:
            rule = f"{master_seed}, that of the job; to resume, call fastseed.init({saved})"
            raise validation.value_error(function, "state['master_seed']", rule, saved)
        self._accelerator.step = state["accumulated"]  # also where Accelerate has no file of a rank
        self._loaded = dict(state)


def _check_rng_types(accelerator: Accelerator) -> None:
    kinds = [str(getattr(kind, "value", kind)) for kind in accelerator.rng_types or ()]
    if accelerator.num_processes > 1 and set(kinds) - {"generator"}:
        rule = "None or ['generator'], which leaves every rank its own generators"
        raise validation.value_error(_NAME, "rng_types of the Accelerator", rule, kinds)


def _check_prepared(function: str, loader: DataLoaderShard) -> None:
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


def _resumable(loader: DataLoaderShard) -> Loader:
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


def _division_of(loader: DataLoaderShard) -> dict[str, int]:
    """Return the ranks, the samples of a step over all of them (0: they vary), and the steps."""
    share = loader.batch_sampler
    ranks = getattr(share, "num_processes", 1)
    samples = loader.total_batch_size if share.batch_size else 0
    return {"ranks": ranks, "samples": samples, "length": len(loader)}


def _on_these_ranks(function: str, state: StateDict, loader: DataLoaderShard) -> StateDict:
    """Return the state of the steps with its position in steps as large as those of ``loader``."""
    before, now = state["division"], _division_of(loader)
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
