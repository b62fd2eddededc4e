"""A job under Hugging Face Accelerate: epochs and phases on their own streams, exact resumption.

from fastseed.integrations.accelerate import AcceleratedJob

accelerator = Accelerator()
job = AcceleratedJob(accelerator, master_seed=42)      # before the model is made
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
from collections.abc import Iterator
from typing import Any

from .._utils import validation
from ..derivation import streams
from ..seeder import api
from ..seeder import state as states
from . import _common
from ._common import Tasks, go

_NAME = "integrations.accelerate.AcceleratedJob"
_SEED_BITS = 31


class AcceleratedJob:
    """Where a job is that uses an ``accelerate.Accelerator``.

    Making one calls :func:`fastseed.init`, unless the script has, with the accelerator's rank and
    world size; then ``reseed(tasks.init)``; and has the accelerator save and load it
    (``register_for_checkpointing``): ``save_state`` keeps the exact state of every rank's
    generators, and ``load_state`` puts them back after Accelerate's own.

    Loaders of :mod:`fastseed.data` share their order between ranks by themselves: do not give them
    to ``prepare``. For one that is prepared, use ``ShuffleSampler(dataset, rank=0, world_size=1)``,
    which Accelerate then deals out, and ``fastseed.register_generator(prepared)``, so that it is
    told the epoch. Where the accelerator was given no ``data_seed``, its ``SeedableRandomSampler``
    gets one from the master seed: ranks have to have the same, and torch's own is each rank's.

    Args:
        accelerator: before anything that shuffles is prepared.
        master_seed: for ``init``; None: the one that the script gave, or one that is drawn.
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
        library = _common.require("accelerate", "accelerate")
        if not isinstance(accelerator, library.Accelerator):
            raise TypeError(
                f"fastseed.{_NAME}: accelerator must be an accelerate.Accelerator, "
                f"got {validation.describe(accelerator)} of type {type(accelerator).__name__}"
            )
        self.tasks = _common.check_tasks(_NAME, tasks)
        _check_synchronised(accelerator)
        seeder = _common.ensure(
            _NAME, master_seed, accelerator.process_index, accelerator.num_processes
        )
        go(self.tasks.init, 0)
        config = accelerator.dataloader_config
        if config.data_seed is None:
            key = seeder.derive_key("accelerate.order", task=self.tasks.init, rank=streams.SHARED)
            config.data_seed = key & ((1 << _SEED_BITS) - 1)
        self._aside: dict[str, Any] | None = None
        self._loaded: dict[str, Any] | None = None
        accelerator.register_for_checkpointing(self)

    @property
    def epoch(self) -> int:
        """The training epoch that the job, or what was loaded, is in."""
        return int(self._state()["epoch"])

    def train(self, epoch: int) -> None:
        """``reseed(tasks.train, epoch)``; or, of the epoch in which ``load_state`` found it,
        exactly where it was."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None and (loaded["task"], loaded["epoch"]) == (self.tasks.train, epoch):
            api.load_state_dict(loaded)
        else:
            go(self.tasks.train, epoch)

    def validate(self, epoch: int = 0) -> contextlib.AbstractContextManager[None]:
        """``with job.validate(epoch):`` runs a block in that task and comes back exactly."""
        return self._inside(self.tasks.validate, epoch)

    def test(self, epoch: int = 0) -> contextlib.AbstractContextManager[None]:
        """The same for testing."""
        return self._inside(self.tasks.test, epoch)

    def predict(self, epoch: int = 0) -> contextlib.AbstractContextManager[None]:
        """The same for predicting."""
        return self._inside(self.tasks.predict, epoch)

    @contextlib.contextmanager
    def _inside(self, task: int, epoch: int) -> Iterator[None]:
        outer, self._aside = self._aside, self._state()
        try:
            with _common.inside(task, epoch):
                yield
        finally:
            self._aside = outer

    def _state(self) -> dict[str, Any]:
        return self._aside or api.current(_NAME).state_dict(rng=True)

    def state_dict(self) -> dict[str, Any]:
        """Where training is, with the exact state of every rank (collective)."""
        return _common.of_all_ranks(self._state())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go there; see :func:`fastseed.load_state_dict` for the errors."""
        seeder = api.current(_NAME)
        states.check(state, seeder.scheme)
        api.load_state_dict(state)
        self._loaded = state


def _check_synchronised(accelerator: Any) -> None:
    kinds = [str(getattr(kind, "value", kind)) for kind in accelerator.rng_types or ()]
    if accelerator.num_processes > 1 and set(kinds) - {"generator"}:
        raise ValueError(
            f"fastseed.{_NAME}: rng_types of the Accelerator must be None or ['generator'], "
            f"got {kinds}: it would give every rank the generators of rank 0"
        )
