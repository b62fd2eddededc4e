"""A script under Hugging Face Accelerate: a stream for each step, and exact resumption.

accelerator = Accelerator()
job = attach(accelerator, master_seed=42)                 # was: set_seed(42)
model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
for epoch in range(job.epoch, epochs):                    # was: range(epochs)
    for step, batch in enumerate(batches, job.step): ...  # was: enumerate(batches)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from .._utils import StateDict, validation
from ..data.loader.states import check_state
from ..data.loader.torch_loader import settings_of, without_samplers
from ..data.order.samplers import samplers_in
from ..seeder.seeder import current_seeder
from . import _common
from ._common import INIT, TRAIN, move_to
from .accelerate_loaders import Base, Order, Position, keyed

if TYPE_CHECKING:
    from accelerate import Accelerator

FORMAT = "fastseed.accelerate"
VERSION = 2

_NAME = "integrations.accelerate"
_accelerate: Any = _common.import_framework("accelerate", "accelerate")
_theirs: Any = _common.import_framework("accelerate.data_loader", "accelerate")


def attach(accelerator: Accelerator, master_seed: int | None = None) -> AttachedJob:
    """Give the loaders that ``accelerator.prepare`` returns a keyed order, and save where they are.

    The constructor of the model comes after it. Before each batch that a prepared loader gives,
    ``reseed`` is called: loader ``i`` of those prepared, from 0, has task ``1 + i``, its passes are
    epochs and its batches steps. ``save_state`` keeps where the loaders are, and after
    ``load_state`` the loop over the training loader continues with the next batch, on other ranks
    and workers too. ``shuffle=True`` has the order of a ``ShuffleSampler``; a ``ShuffleSampler`` is
    a whole order, which Accelerate divides; other samplers are kept.

    Args:
        accelerator: before ``prepare`` and ``load_state``.
        master_seed: for ``fastseed.init``; None: the one of the script, or a random one.

    Returns:
        An object whose ``epoch`` and ``step`` are those of the next training batch. The training
        loader is the first one with a random order, or else the first.

    Raises:
        TypeError, ValueError: an argument is wrong; ``rng_types`` would give every rank the
            generators of rank 0; or, from ``prepare``, a dataset is iterable.
        RuntimeError: a loader is prepared already.
    """
    function, kind = f"{_NAME}.attach", _accelerate.Accelerator
    rule = "an accelerate.Accelerator"
    validation.check_instance(function, "accelerator", accelerator, kind, rule)
    kinds = [str(getattr(kind, "value", kind)) for kind in accelerator.rng_types or ()]
    if accelerator.num_processes > 1 and set(kinds) - {"generator"}:
        rule = "None or ['generator'], which leaves every rank its own generators"
        raise validation.value_error(function, "rng_types of the Accelerator", rule, kinds)
    if accelerator._dataloaders or "prepare_data_loader" in vars(accelerator):
        raise RuntimeError(
            f"fastseed.{function}: call it once, before accelerator.prepare is given a loader"
        )
    place = accelerator.process_index, accelerator.num_processes
    _common.ensure_seeder(function, master_seed, *place)
    move_to(INIT, 0)
    job = AttachedJob(accelerator)
    accelerator.prepare_data_loader = job._prepare
    accelerator.register_for_checkpointing(job)
    return job


class AttachedJob:
    """What ``attach`` returns; ``save_state`` and ``load_state`` of the accelerator call it."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator, self._prepare_theirs = accelerator, accelerator.prepare_data_loader
        self._was_asked = True  # where the loop begins, since a state was loaded

    @property
    def epoch(self) -> int:
        """The epoch of the next training batch, also after ``load_state``."""
        self._was_asked = True
        return 0 if self._training is None else self._training.epoch

    @property
    def step(self) -> int:
        """The number of the next training batch in its epoch."""
        return 0 if self._training is None else self._training.step

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epoch={self.epoch}, step={self.step})"

    @property
    def _positions(self) -> list[Position]:
        kinds = (Shard, Dispatcher)
        loaders = self._accelerator._dataloaders
        return [one.fastseed_position for one in loaders if isinstance(one, kinds)]

    @property
    def _training(self) -> Position | None:
        positions = self._positions
        return next((p for p in positions if p.is_random), positions[0] if positions else None)

    def _prepare(self, data_loader: Any, *arguments: Any, **more: Any) -> Any:
        if isinstance(data_loader, (Shard, Dispatcher)):  # again
            return self._prepare_theirs(data_loader, *arguments, **more)
        function = "integrations.accelerate: accelerator.prepare"
        if isinstance(data_loader.dataset, IterableDataset) or data_loader.batch_sampler is None:
            rule = "one of a map-style dataset, in batches: iterate fastseed.data.steps instead"
            raise validation.type_error(function, "loader", rule, data_loader.dataset)
        batches: Any = data_loader.batch_sampler
        if divider := next((s for s in samplers_in(batches) if hasattr(s, "num_replicas")), None):
            rule = "one that Accelerate alone divides among ranks: pass shuffle=True"
            raise validation.value_error(function, "sampler", rule, divider)
        is_regular = type(batches) is BatchSampler
        order = Order(keyed(batches.sampler) if is_regular else batches)
        plain = without_samplers(data_loader)
        if is_regular:
            size = {"batch_size": batches.batch_size, "drop_last": batches.drop_last}
            prepared = DataLoader(**plain, sampler=order, **size)
        else:
            prepared = DataLoader(**plain, batch_sampler=order)
        prepared = self._prepare_theirs(prepared, *arguments, **more)
        kinds = {_theirs.DataLoaderShard: Shard, _theirs.DataLoaderDispatcher: Dispatcher}
        if type(prepared) not in kinds:
            rule = "for a device whose loaders are Accelerate's own"
            raise validation.type_error(function, "loader", rule, prepared)
        task = TRAIN + len(self._positions)
        # Accelerate has it in its list, so it stays the object that it is; its own __class__ lies.
        vars(object)["__class__"].__set__(prepared, kinds[type(prepared)])
        prepared.use_stateful_dataloader = False  # the job saves where it is
        prepared.fastseed_position = Position(
            self, prepared, order, task, is_regular, isinstance(prepared, Dispatcher)
        )
        prepared.base_dataloader = Base(**settings_of(prepared.base_dataloader))
        prepared.base_dataloader.fetch = prepared.fastseed_position.fetch
        return prepared

    def state_dict(self) -> StateDict:
        """Return where the loaders are: after the batches that the loops have.

        Between two updates of an accumulation it warns: Accelerate saves no gradients.
        """
        if not self._accelerator.sync_gradients:
            warnings.warn(
                f"fastseed.{_NAME}: save_state was called inside an accumulation, and Accelerate "
                "saves no gradients: call it where accelerator.sync_gradients is True",
                stacklevel=2,
            )
        return {
            "format": FORMAT,
            "version": VERSION,
            "master_seed": current_seeder(f"{_NAME}.state_dict").master_seed,
            "accumulated": self._accelerator.step,
            "loaders": [p.state_dict(p is self._training) for p in self._positions],
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continue after the batches that were given; an error for a state of another job."""
        function = f"{_NAME}.load_state_dict"
        master_seed = current_seeder(function).master_seed
        own: dict[str, str | int] = {"format": FORMAT, "version": VERSION}
        check_state(function, "job", state, own, ("master_seed", "accumulated", "loaders"))
        saved, positions, loaders = state["master_seed"], self._positions, state["loaders"]
        if saved != master_seed:
            rule = f"{master_seed}, that of the job; to resume, call fastseed.init({saved})"
            raise validation.value_error(function, "state['master_seed']", rule, saved)
        if len(loaders) != len(positions):
            rule = f"those of the {len(positions)} loaders that are prepared: prepare all first"
            raise validation.value_error(function, "state['loaders']", rule, loaders)
        for position, fields in zip(positions, loaders, strict=True):
            position.check(function, fields)
        for position, fields in zip(positions, loaders, strict=True):
            position.load_state_dict(fields)
        self._accelerator.step = state["accumulated"]  # also where Accelerate has no file of a rank
        self._was_asked = False


class Shard(_theirs.DataLoaderShard):  # type: ignore[misc]
    """A prepared loader that counts the batches that it gives."""

    def __iter__(self) -> Iterator[Any]:
        return self.fastseed_position.hand_out(super().__iter__())  # type: ignore[no-any-return]


class Dispatcher(_theirs.DataLoaderDispatcher):  # type: ignore[misc]
    """A prepared loader whose batches rank 0 reads for all, and that counts them."""

    def __iter__(self) -> Iterator[Any]:
        return self.fastseed_position.hand_out(super().__iter__())  # type: ignore[no-any-return]
