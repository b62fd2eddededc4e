"""A callback for Lightning: a stream for each phase and epoch, and exact resumption.

fastseed.init(42)
fastseed.reseed(0)  # before the model is built
trainer = Trainer(callbacks=[FastseedCallback()])
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch.distributed as dist
from torch.utils._pytree import tree_leaves
from torch.utils.data.distributed import DistributedSampler

from .._utils import StateDict, validation
from .._utils.log import warn_once
from ..data import Loader, ShuffleSampler
from ..data.order.samplers import samplers_in
from ..distributed.rendezvous import collective, group_size
from ..seeder import api
from ..seeder import state as states
from ..seeder.seeder import current_seeder
from . import _common
from ._common import INIT, PREDICT, TEST, TRAIN, VALIDATE, move_to

if TYPE_CHECKING:
    from pytorch_lightning import LightningModule, Trainer

_VERSION = 1
_NAME = "integrations.lightning.FastseedCallback"

T = TypeVar("T")


def _base() -> Any:
    """Return Lightning's Callback, from the one of its two packages that the script uses."""
    packages = ["lightning.pytorch", "pytorch_lightning"]
    first, second = sorted(packages, key=lambda name: name not in sys.modules)
    try:
        return _common.import_framework(first, "lightning").Callback
    except ImportError:
        return _common.import_framework(second, "lightning").Callback


class FastseedCallback(_base()):  # type: ignore[misc]
    """Reseed at each phase and epoch, and keep the state of the generators in checkpoints.

    Make it the first of ``callbacks``, and train in one thread at a time.

    - ``setup``: ``init``, unless the script has called it, and ``reseed(task=0)``. Each epoch:
      ``reseed(1, epoch)``, before its DataLoader is iterated.
    - Validation in ``fit`` runs at task 2 and the epoch; ``trainer.validate``, ``test`` and
      ``predict`` run at epoch 0 of tasks 2 to 4.
    - Checkpoints hold the exact states of all ranks. ``fit(ckpt_path=...)`` resumes from there, on
      any number of ranks, also mid-epoch if the DataLoader does (``fastseed.data.Loader``).

    Args:
        master_seed: for ``init``; None: the one of the script, or a random one.

    Raises:
        TypeError, ValueError: an argument is wrong, here or when the trainer calls ``setup``.
    """

    def __init__(self, master_seed: int | None = None) -> None:
        self._master_seed = master_seed
        self._over = False  # the last batch of the epoch is done
        self._outer: StateDict | None = None  # training's state, around an evaluation
        self._loaded: StateDict | None = None
        self._began: int | None = None  # an epoch in which the DataLoader was already iterated
        self._wrapped: list[tuple[object, str]] = []

    state_key = "fastseed"

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if os.environ.get("PL_SEED_WORKERS") == "1":
            warn_once(
                "fastseed: seed_everything(..., workers=True) gives Lightning's seeds to workers, "
                "which then draw other numbers; leave it out"
            )
        _common.ensure_seeder(_NAME, self._master_seed, trainer.global_rank, trainer.world_size)
        move_to(INIT, 0)
        # Lightning makes the DataLoader's iterator before it calls a hook of the phase.
        self._wrap(trainer.fit_loop, "run", self._fit, trainer)
        for method in ("run", "setup_data", "increment_progress_to_evaluation_end"):
            loop = trainer.fit_loop.epoch_loop.val_loop
            self._wrap(loop, method, self._evaluate, VALIDATE, trainer)
        self._wrap(trainer.validate_loop, "run", self._evaluate, VALIDATE, None)
        self._wrap(trainer.test_loop, "run", self._evaluate, TEST, None)
        self._wrap(trainer.predict_loop, "run", self._evaluate, PREDICT, None)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        for loop, method in self._wrapped:
            vars(loop).pop(method, None)
        self._wrapped = []

    def _wrap(
        self, loop: object, method: str, around: Callable[..., object], *arguments: object
    ) -> None:
        original = getattr(loop, method, None)
        if original is not None and method not in vars(loop):
            setattr(loop, method, functools.partial(around, original, *arguments))
            self._wrapped.append((loop, method))

    def _fit(self, run: Callable[[], T], trainer: Trainer) -> T:
        self._over, self._began = False, trainer.current_epoch
        if self._loaded is not None:
            self._began = self._loaded["job"]["epoch"] + self._loaded["over"]
            if self._loaded["over"]:
                self._loaded = None
        move_to(TRAIN, self._began)
        return run()

    def _evaluate(self, run: Callable[[], T], task: int, trainer: Trainer | None) -> T:
        """Run an evaluation in its own task; validation in ``fit`` has a trainer, for the epoch."""
        before, outer = current_seeder(_NAME).state_dict(rng=True), self._outer
        self._outer = outer or before
        try:
            move_to(task, 0 if trainer is None else trainer.current_epoch)
            return run()
        finally:
            api.load_state_dict(before)
            self._outer = outer

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the states of a checkpoint, after DataLoaders were made."""
        _check_samplers(trainer.train_dataloader, is_training=True)
        if self._loaded is not None:
            api.load_state_dict(self._loaded["job"])
            self._loaded = self._began = None

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loop, epoch = trainer.fit_loop, trainer.current_epoch
        # In the first epoch of a run Lightning has iterated the DataLoader, and does so only once;
        # if it resumes from the end of an epoch, it iterates again after this hook.
        is_resuming = getattr(loop, "is_resuming", False)  # since Lightning 2.6
        iterates = epoch > 0 and not is_resuming and not loop.epoch_loop.restarting
        # Iterating fastseed's loaders has used none of the global generators.
        are_ours = all(isinstance(one, Loader) for one in tree_leaves(trainer.train_dataloader))
        if iterates or are_ours or self._began != epoch:
            move_to(TRAIN, epoch)
        self._began, self._over = None, False

    def on_train_batch_end(self, trainer: Trainer, *event: object) -> None:
        self._over = trainer.is_last_batch

    def on_train_epoch_end(self, *event: object) -> None:
        self._over = True

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        every = trainer.val_dataloaders, trainer.test_dataloaders, trainer.predict_dataloaders
        _check_samplers(every)

    on_test_start = on_predict_start = on_validation_start

    def state_dict(self) -> StateDict:
        """Return the coordinates of training and the exact states of every rank (collective)."""
        job = self._outer or current_seeder(_NAME).state_dict(rng=True)
        parts: list[StateDict] = [{}] * (1 if job["world_size"] == 1 else group_size())
        if len(parts) > 1:
            collective(_NAME, dist.all_gather_object, parts, job)
        for part in parts:
            job = {**job, **{k: v for k, v in part.items() if k.startswith(states.RNG)}}
        return {"version": _VERSION, "over": int(self._over), "job": job}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take the state of a checkpoint; ValueError if it is damaged or that of another job."""
        seeder = current_seeder(_NAME)
        if state_dict.get("version") != _VERSION or state_dict.get("over") not in (0, 1):
            raise validation.value_error(_NAME, "state_dict", f"of version {_VERSION}", state_dict)
        job: Any = state_dict.get("job")
        states.check(job)
        if job["master_seed"] != seeder.master_seed:
            rule = f"{job['master_seed']}, as in the checkpoint"
            raise validation.value_error(_NAME, "master_seed", rule, seeder.master_seed)
        self._loaded = dict(state_dict)


def _check_samplers(loaders: object, *, is_training: bool = False) -> None:
    """Refuse an order of fastseed's, divided between ranks, that is divided once more."""
    for loader in tree_leaves(loaders):
        is_ours = is_training and isinstance(loader, Loader)
        for sampler in samplers_in(loader):
            if not isinstance(sampler, DistributedSampler):
                continue
            # Lightning wraps the samplers of users in a dataset of their indices.
            inner = getattr(sampler.dataset, "_sampler", None)
            if is_ours or (isinstance(inner, ShuffleSampler) and inner.world_size != 1):
                raise ValueError(
                    f"fastseed.{_NAME}: use_distributed_sampler of the Trainer must be False: the "
                    "loaders and samplers of fastseed share their order between ranks"
                )
