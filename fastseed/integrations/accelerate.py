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
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .._utils import StateDict, validation
from ..data import steps as make_steps
from ..data.loader.states import check_state
from ..data.steps import StepLoop
from ..seeder.seeder import current_seeder
from . import _common, _prepared_loader
from ._common import INIT, PREDICT, TEST, TRAIN, VALIDATE, move_to, run_in_task

if TYPE_CHECKING:
    from accelerate import Accelerator
    from accelerate.data_loader import DataLoaderShard

FORMAT = "fastseed.accelerate"
VERSION = 1

_NAME = "integrations.accelerate.AcceleratedJob"


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
            key = _common.order_key(_NAME, "accelerate.order", INIT)
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
        _prepared_loader.check_prepared(function, loader)
        if self._steps is None or self._loader is not loader:
            batches = _prepared_loader.resumable(loader)
            self._steps = make_steps(batches, task=TRAIN)
            self._loader = loader
        if self._loaded is not None:
            if self._loaded["steps"]:
                here = _prepared_loader.on_these_ranks(function, self._loaded, loader)
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
        """Run a block in the validation task, as ``run_in_task``; so do ``test``, ``predict``."""
        return run_in_task(VALIDATE, epoch)

    def test(self, epoch: int = 0) -> contextlib.AbstractContextManager[None]:
        return run_in_task(TEST, epoch)

    def predict(self, epoch: int = 0) -> contextlib.AbstractContextManager[None]:
        return run_in_task(PREDICT, epoch)

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
            "division": {} if loader is None else _prepared_loader.division_of(loader),
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
