"""A job under Hugging Face Accelerate: a stream for each epoch and phase, and exact resumption.

accelerator = Accelerator()
job = AcceleratedJob(accelerator, master_seed=42)      # before the model is built
batches = fastseed.data.ResumableLoader(dataset, batch_size=32, shuffle=True)
accelerator.register_for_checkpointing(batches)
model, optimizer = accelerator.prepare(model, optimizer)
for epoch in range(epochs):
    job.train(epoch)
    for batch in batches: ...
    with job.validate(epoch): ...
"""

from __future__ import annotations

import contextlib
from typing import Any

from .._utils import validation
from ..derivation import context, streams
from ..seeder import api
from ..seeder import state as states
from . import _common
from ._common import Tasks, move_to

_NAME = "integrations.accelerate.AcceleratedJob"
_SEED_BITS = 31


class AcceleratedJob:
    """Reseed the phases of a job that uses an ``accelerate.Accelerator``, and save where it is.

    The constructor calls ``fastseed.init``, unless the script has, with the accelerator's rank
    and world size; calls ``reseed(tasks.init)``; and registers itself for checkpointing:
    ``save_state`` keeps the exact state of every rank's generators, and ``load_state`` restores
    them after Accelerate's own.

    Loaders of ``fastseed.data`` share their order between ranks themselves: do not ``prepare``
    them. A prepared loader needs ``ShuffleSampler(dataset, rank=0, world_size=1)``, which
    Accelerate cuts, and ``fastseed.register_generator(prepared)`` so that ``reseed`` sets its
    epoch. If the accelerator has no ``data_seed``, its ``SeedableRandomSampler`` gets one from the
    master seed, since torch's seed differs between ranks here.

    Args:
        accelerator: before anything that shuffles is prepared.
        master_seed: for ``init``; None: the one of the script, or a random one.
        tasks: the task numbers.

    Raises:
        TypeError, ValueError: an argument is wrong; or the accelerator's ``rng_types`` would give
            every rank the generators of rank 0.
    """

    def __init__(
        self,
        accelerator: Any,
        master_seed: int | None = None,
        *,
        tasks: Tasks = Tasks(),  # noqa: B008 (a tuple)
    ) -> None:
        kind = _common.import_framework("accelerate", "accelerate").Accelerator
        validation.check_instance(
            _NAME, "accelerator", accelerator, kind, "an accelerate.Accelerator"
        )
        master_seed, self.tasks = _common.check_arguments(_NAME, master_seed, tasks)
        _check_rng_types(accelerator)
        ranks = accelerator.process_index, accelerator.num_processes
        seeder = _common.ensure_seeder(_NAME, master_seed, *ranks)
        move_to(self.tasks.init, 0)
        config = accelerator.dataloader_config
        if config.data_seed is None:
            key = seeder.derive_key("accelerate.order", task=self.tasks.init, rank=streams.SHARED)
            config.data_seed = key & ((1 << _SEED_BITS) - 1)
        self._training = _common.TrainingState(_NAME)
        self._loaded: dict[str, Any] | None = None
        accelerator.register_for_checkpointing(self)

    @property
    def epoch(self) -> int:
        """The training epoch of the job, or of the checkpoint that was loaded."""
        return int(self._training.get()["epoch"])

    def train(self, epoch: int) -> None:
        """Reseed for a training epoch; restore the exact states if ``load_state`` was inside it."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None and (loaded["task"], loaded["epoch"]) == (self.tasks.train, epoch):
            api.load_state_dict(loaded)
        else:
            move_to(self.tasks.train, epoch)

    def validate(self, epoch: int = 0) -> contextlib.AbstractContextManager[None]:
        """Run a block in the validation task; afterwards every generator is as it was before."""
        return self._training.inside(self.tasks.validate, epoch)

    def test(self, epoch: int = 0) -> contextlib.AbstractContextManager[None]:
        """Run a block in the test task; afterwards every generator is as it was before."""
        return self._training.inside(self.tasks.test, epoch)

    def predict(self, epoch: int = 0) -> contextlib.AbstractContextManager[None]:
        """Run a block in the prediction task; afterwards every generator is as it was before."""
        return self._training.inside(self.tasks.predict, epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of training with the exact states of every rank (collective)."""
        return self._training.gather()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of training; errors are those of ``fastseed.load_state_dict``."""
        states.check(state, context.current(_NAME).scheme)
        api.load_state_dict(state)
        self._loaded = state


def _check_rng_types(accelerator: Any) -> None:
    kinds = [str(getattr(kind, "value", kind)) for kind in accelerator.rng_types or ()]
    if accelerator.num_processes > 1 and set(kinds) - {"generator"}:
        rule = "None or ['generator'], which leaves every rank its own generators"
        raise validation.value_error(_NAME, "rng_types of the Accelerator", rule, kinds)
