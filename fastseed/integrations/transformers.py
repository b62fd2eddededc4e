"""A callback for the Trainer of Hugging Face transformers.

import fastseed as seeder
from fastseed.integrations.transformers import FastseedCallback

trainer = Trainer(model=model, args=arguments, ..., callbacks=[FastseedCallback(42)])
trainer.train(resume_from_checkpoint=...)
"""

from __future__ import annotations

import logging
import os
from typing import Any

from .._utils import validation
from ..checkpoint import files as checkpoint
from ..derivation import streams
from ..seeder import api
from . import _common
from ._common import Tasks, go

logger = logging.getLogger("fastseed")

_NAME = "integrations.transformers.FastseedCallback"
_FILE = "fastseed-{rank:05d}.state"
_SEED_BITS = 31


class FastseedCallback(_common.require("transformers", "transformers").TrainerCallback):  # type: ignore[misc]
    """Reseeds at each epoch, keeps evaluation apart, and makes a resumed run the same run.

    - When training begins: :func:`fastseed.init`, unless the script has called it, with the rank
      and world size of the arguments. The order of the data gets its seed from the master seed.
    - Each epoch: ``reseed(tasks.train, epoch)``. It begins when the last step of the epoch before
      is done, so that a checkpoint of that step has the states in which the next epoch begins.
    - Evaluation that the Trainer schedules draws at ``(tasks.validate, epoch)``, and training goes
      on exactly where it was: it is the same with and without. A call of ``evaluate`` or
      ``predict`` by the script has no event that says so: write ``with inside(3):`` around it
      (:func:`fastseed.integrations.inside`).
    - A data set of :func:`fastseed.data.per_sample` is told the epoch. Without it, what samples
      draw differs in the batch that had been fetched ahead when a checkpoint was written.
    - Checkpoints: the Trainer itself keeps and restores the global generators. A file beside
      (``fastseed-<rank>.state``, :mod:`fastseed.checkpoint`) keeps everything, registered
      generators as well, and is loaded when training goes on in mid-epoch.

    The Trainer seeds all ranks alike from ``TrainingArguments.seed`` when it is made, and again
    before ``model_init``: what is drawn there follows that seed.

    Args:
        master_seed: for ``init``; None: the one that the script gave, or one that is drawn.
        tasks: the task numbers.
        every_step: also ``reseed(tasks.train, epoch, step + 1)`` before each step, which the
            Trainer counts from the beginning of training.

    Raises:
        TypeError, ValueError: an argument is wrong, here or when training begins.
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
        self._aside: dict[str, Any] | None = None  # of training, around an evaluation
        self._away = False  # whether the generators are the evaluation's now
        self._resume: str | None = None  # a file to go on from at the next step

    # ------------------------------------------------------------------ training

    def on_train_begin(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        """See the class."""
        _common.ensure(_NAME, self._master_seed, args.process_index, args.world_size)
        self._aside, self._away, self._resume = None, False, None
        _seed_samplers(keywords.get("train_dataloader"), self._tasks.train)
        if state.global_step and not _is_whole(state.epoch):
            self._resume = _saved_file(args, state)
        if getattr(args, "eval_on_start", False):
            go(self._tasks.validate, 0)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        """See the class."""
        self._away = False
        task, epoch = self._tasks.train, int(state.epoch or 0)
        go(task, epoch)
        dataset: Any = getattr(keywords.get("train_dataloader"), "dataset", None)
        if callable(getattr(dataset, "set_scope", None)):  # per_sample: workers cannot ask
            dataset.set_scope(task, epoch)

    def on_step_begin(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        """See the class."""
        self._come_back()
        self._aside = None
        if self._resume is not None:
            checkpoint.load(self._resume)
            self._resume = None
        if self._every_step:
            go(self._tasks.train, int(state.epoch or 0), state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        """See the class."""
        if _is_whole(state.epoch):
            go(self._tasks.train, round(state.epoch))
        self._evaluate_next(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        """See the class."""
        self._come_back()
        self._evaluate_next(state, control)

    # ------------------------------------------------------------------ evaluation, checkpoints

    def _evaluate_next(self, state: Any, control: Any) -> None:
        """No event comes before an evaluation but the one after which it is due."""
        if control.should_evaluate:
            self._aside = api.current(_NAME).state_dict(rng=True)
            epoch = max(0, -int(-state.epoch // 1) - 1)  # that of the step that is done
            go(self._tasks.validate, epoch)
            self._away = True

    def _come_back(self) -> None:
        if self._away and self._aside is not None:
            api.load_state_dict(self._aside)
        self._away = False

    def on_prediction_step(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        """A second evaluation after the same step, of another data set: it puts back the same."""
        self._away = self._aside is not None

    def on_evaluate(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        """See the class."""
        self._come_back()

    def on_save(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        """See the class."""
        self._come_back()
        folder = _folder(args, state)
        if os.path.isdir(folder):
            checkpoint.save(os.path.join(folder, _FILE))

    def on_train_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        """See the class."""
        self._come_back()


def _is_whole(epoch: float | None) -> bool:
    """Whether an epoch has just ended, as the Trainer counts: steps done over steps in it."""
    return bool(epoch) and float(epoch or 0).is_integer()


def _folder(args: Any, state: Any) -> str:
    return os.path.join(args.output_dir, f"checkpoint-{state.global_step}")


def _saved_file(args: Any, state: Any) -> str | None:
    """What ``on_save`` wrote into the checkpoint that training goes on from."""
    named = args.resume_from_checkpoint
    folders = [named] if isinstance(named, str) and os.path.isdir(named) else []
    for folder in (*folders, _folder(args, state)):
        path = os.path.join(folder, _FILE)
        if os.path.exists(path.format(rank=0)) or os.path.exists(
            path.format(rank=args.process_index)
        ):
            return path
    if list(api.current(_NAME).registry):
        logger.warning(
            "fastseed: there is no %s in %s: registered generators begin the epoch again",
            _FILE.format(rank=args.process_index),
            _folder(args, state),
        )
    return None


def _seed_samplers(dataloader: Any, task: int) -> None:
    """Of Accelerate's sampler: it took torch's seed of the moment, which is each rank's own."""
    key = api.current(_NAME).derive_key("transformers.order", task=task, rank=streams.SHARED)
    seen = 0
    while dataloader is not None and seen < 8:
        if hasattr(dataloader, "initial_seed") and hasattr(dataloader, "set_epoch"):
            dataloader.initial_seed = key & ((1 << _SEED_BITS) - 1)
        inner = getattr(dataloader, "batch_sampler", None)
        dataloader = inner if inner is not None else getattr(dataloader, "sampler", None)
        seen += 1
