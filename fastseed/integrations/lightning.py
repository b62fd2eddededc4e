"""A callback for Lightning: each phase and epoch on its own streams, and exact resumption.

import fastseed as seeder
from fastseed.integrations.lightning import FastseedCallback

seeder.init(42)
seeder.reseed(0)                                   # before the model is made
trainer = Trainer(callbacks=[FastseedCallback()])
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data.distributed import DistributedSampler

from .._utils import validation
from ..data.plain_loader import Loader
from ..derivation import streams
from ..seeder import api
from ..seeder import state as states
from . import _common
from ._common import Tasks, go

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")  # one code base under two names
_VERSION = 1
_NAME = "integrations.lightning.FastseedCallback"


def _base() -> Any:
    """Lightning's Callback, of the package that the script uses."""
    loaded = [package for package in _PACKAGES if package in sys.modules]
    if not loaded:
        for package in _PACKAGES:
            try:
                return _common.require(package, "lightning").Callback
            except ImportError as error:
                missing = error
        raise missing
    return sys.modules[loaded[0]].Callback


class FastseedCallback(_base()):  # type: ignore[misc]
    """Reseeds at each phase and epoch, and keeps where the job is in Lightning's checkpoints.

    Let it be the first in ``callbacks``: those before it draw from what was there before.

    - ``setup``: :func:`fastseed.init`, unless the script has called it, with the trainer's rank
      and world size; then ``reseed(tasks.init)``, for ``configure_model``.
    - Each training epoch: ``reseed(tasks.train, epoch)``, before its DataLoader is iterated.
    - Validation, the sanity check included, draws at ``(tasks.validate, epoch)``, and training goes
      on exactly where it was: training is the same with and without it. ``trainer.validate``,
      ``test`` and ``predict`` draw at epoch 0 of their tasks.
    - Checkpoints hold the exact state of every rank's generators; ``fit(ckpt_path=...)`` goes on
      from there, also in mid-epoch if the DataLoader does (:class:`fastseed.data.ResumableLoader`).
      The number of ranks may change, as :func:`fastseed.load_state_dict` says.

    Args:
        master_seed: for ``init``; None: the one that the script gave, or one that is drawn.
        tasks: the task numbers.
        every_step: also ``reseed(tasks.train, epoch, batch + 1)`` before each training batch, so
            that what a batch draws does not depend on what earlier ones drew.

    Raises:
        TypeError, ValueError: an argument is wrong, here or when the trainer calls ``setup``.
    """

    def __init__(
        self,
        master_seed: int | None = None,
        *,
        tasks: Tasks = Tasks(),  # noqa: B008 (a tuple)
        every_step: bool = False,
    ) -> None:
        if master_seed is not None:
            validation.check_int(_NAME, "master_seed", master_seed, 0, streams.MAX_MASTER)
        self._master_seed, self._tasks = master_seed, _common.check_tasks(_NAME, tasks)
        self._every_step = every_step
        self._over = False  # whether the last batch of the epoch is done
        self._aside: dict[str, Any] | None = None  # of training, while a validation runs
        self._loaded: dict[str, Any] | None = None
        self._began: int | None = None  # an epoch that the DataLoader was already iterated in
        self._wrapped: list[tuple[Any, str]] = []

    @property
    def state_key(self) -> str:
        """Where the state lies in a checkpoint."""
        return "fastseed"

    # ------------------------------------------------------------------ phases

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """See the class."""
        _common.ensure(_NAME, self._master_seed, trainer.global_rank, trainer.world_size)
        go(self._tasks.init, 0)
        # There is no hook before Lightning makes an iterator: an epoch's hooks come after it.
        self._wrap(trainer.fit_loop, "run", self._fit, trainer)
        self._wrap(trainer.fit_loop.epoch_loop, "on_run_start", self._iterate)
        for method in ("run", "setup_data", "increment_progress_to_evaluation_end"):
            loop = trainer.fit_loop.epoch_loop.val_loop
            self._wrap(loop, method, self._evaluate, self._tasks.validate, trainer)
        self._wrap(trainer.validate_loop, "run", self._evaluate, self._tasks.validate, None)
        self._wrap(trainer.test_loop, "run", self._evaluate, self._tasks.test, None)
        self._wrap(trainer.predict_loop, "run", self._evaluate, self._tasks.predict, None)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """See the class."""
        for loop, method in self._wrapped:
            vars(loop).pop(method, None)
        self._wrapped = []

    def _wrap(self, loop: Any, method: str, around: Callable[..., Any], *arguments: Any) -> None:
        original = getattr(loop, method, None)
        if original is not None and method not in vars(loop):
            setattr(loop, method, functools.partial(around, original, *arguments))
            self._wrapped.append((loop, method))

    def _fit(self, run: Callable[[], Any], trainer: Any) -> Any:
        epoch, self._over = trainer.current_epoch, False
        if self._loaded is not None:
            epoch = self._loaded["job"]["epoch"] + self._loaded["over"]
            if self._loaded["over"]:
                self._loaded = None
        go(self._tasks.train, epoch)
        self._began = epoch
        return run()

    def _iterate(self, run: Callable[[Any], Any], fetcher: Any) -> Any:
        """From a checkpoint of an epoch's end Lightning iterates twice, and calls no epoch hook."""
        if self._began is None:
            return run(fetcher)
        before = api.current(_NAME).state_dict(rng=True)
        go(self._tasks.train, self._began)
        fresh = torch.get_rng_state()
        result, self._began = run(fetcher), None
        if torch.equal(fresh, torch.get_rng_state()):  # once only, or nothing was drawn
            api.load_state_dict(before)
        return result

    def _evaluate(self, run: Callable[[], Any], task: int, trainer: Any) -> Any:
        """Training's own validation has a trainer, for the epoch."""
        outer, self._aside = self._aside, self._state()
        try:
            with _common.inside(task, 0 if trainer is None else trainer.current_epoch):
                return run()
        finally:
            self._aside = outer

    # ------------------------------------------------------------------ training

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """See the class."""
        _check_samplers(trainer)
        if self._loaded is not None:  # now that DataLoaders have drawn what they wanted to
            api.load_state_dict(self._loaded["job"])
            self._loaded = self._began = None

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """See the class."""
        began, self._began, self._over = self._began, None, False
        if began != trainer.current_epoch or _draw_nothing(trainer):
            go(self._tasks.train, trainer.current_epoch)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """See the class."""
        self._over = False
        if self._every_step:
            go(self._tasks.train, trainer.current_epoch, batch_idx + 1)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """See the class."""
        self._over = trainer.is_last_batch

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """See the class."""
        self._over = True

    # ------------------------------------------------------------------ checkpoints

    def _state(self) -> dict[str, Any]:
        return self._aside or api.current(_NAME).state_dict(rng=True)

    def state_dict(self) -> dict[str, Any]:
        """Where training is: coordinates and the exact state of every rank (collective)."""
        merged = _common.of_all_ranks(self._state())
        return {"version": _VERSION, "over": int(self._over), "job": merged}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What Lightning found in a checkpoint.

        Raises:
            ValueError: it is damaged, or of another version, scheme or master seed.
        """
        seeder = api.current(_NAME)
        state = dict(state_dict)
        held = state.get("job")
        if state.get("version") != _VERSION or state.get("over") not in (0, 1):
            raise ValueError(
                f"fastseed.{_NAME}: state_dict must be of version {_VERSION}, "
                f"got {validation.describe({k: v for k, v in state.items() if k != 'job'})}"
            )
        states.check(held, seeder.scheme)
        if held["master_seed"] != seeder.master_seed:  # type: ignore[index]
            raise ValueError(
                f"fastseed.{_NAME}: master_seed must be the checkpoint's, "
                f"{held['master_seed']}, got {seeder.master_seed}"  # type: ignore[index]
            )
        self._loaded = state


def _train_loaders(trainer: Any) -> list[Any]:
    return tree_leaves(trainer.train_dataloader)


def _draw_nothing(trainer: Any) -> bool:
    """Whether iterating the training data has drawn nothing: then it has not begun the epoch."""
    return all(isinstance(loader, Loader) for loader in _train_loaders(trainer))


def _check_samplers(trainer: Any) -> None:
    for loader in _train_loaders(trainer):
        if isinstance(loader, Loader) and isinstance(loader.sampler, DistributedSampler):
            raise ValueError(
                f"fastseed.{_NAME}: use_distributed_sampler must be False of the Trainer: loaders "
                "of fastseed share their order between ranks, and Lightning has put a "
                "DistributedSampler in its place"
            )
