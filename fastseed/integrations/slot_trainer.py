"""A Trainer of Hugging Face transformers with the same weights on any number of ranks.

fastseed.init(42)
trainer = SlotTrainer(model=model, args=arguments, train_dataset=dataset, slots=8)
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from .._utils import validation
from ..data import steps
from ..elastic import Slot, SlotGradients
from ..seeder import api
from ..seeder.seeder import current_seeder
from . import _common
from .transformers import FastseedCallback

if TYPE_CHECKING:
    from transformers import TrainerControl as Control
    from transformers import TrainerState as State
    from transformers import TrainingArguments as Args

_NAME = "integrations.slot_trainer.SlotTrainer"
_TASK = _common.Tasks().train
_LOADER = ("collate_fn", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
_transformers: Any = _common.import_framework("transformers", "transformers")


class SlotTrainer(_transformers.Trainer):  # type: ignore[misc]
    """A ``transformers.Trainer`` whose steps are the mean of slots (``elastic.SlotGradients``).

    The number of ranks must divide ``slots``; a run may resume on another number of ranks, also
    mid-epoch. The model is replicated, without ``DistributedDataParallel``; the Trainer clips,
    steps, schedules and saves as ever.

    - A slot has ``per_device_train_batch_size`` samples of one order, as ``data.steps`` has with
      ``slots``; an incomplete last step is filled up, or dropped with ``dataloader_drop_last``.
      ``gradient_accumulation_steps`` is set to ``slots`` over the number of ranks.
    - Each step begins with ``reseed``, and what the forward pass of a slot draws from torch's
      generators, such as dropout, is a function of step and slot. Wrap the dataset in
      ``per_sample`` if it draws.
    - Where the Trainer counts the items of a step, such as tokens, the mean is over those of all
      slots: the loss must then be a sum that is divided by ``num_items_in_batch``.
    - The losses in the log depend on the number of ranks.

    Call ``fastseed.init`` before. All ranks must have the same weights and dataset.

    Args:
        arguments: those of ``transformers.Trainer``.
        slots: the number of slots of a step, [1, 2**24).
        more: the keyword arguments of ``transformers.Trainer``.

    Raises:
        TypeError, ValueError: ``slots`` is no multiple of the number of ranks, or differs from
            ``gradient_accumulation_steps``; the model is divided; there is a ``FastseedCallback``.
        RuntimeError: ``fastseed.init`` was not called.
    """

    loss_is_scaled_for_ga = True  # the mean over slots is taken once, at the end

    def __init__(self, *arguments: Any, slots: int, **more: Any) -> None:
        current_seeder(_NAME)
        super().__init__(*arguments, **more)
        self._slots = validation.check_int(_NAME, "slots", slots, 1, 2**24 - 1)
        self._check_arguments()
        self.args.gradient_accumulation_steps = slots // self.args.world_size
        self.args.average_tokens_across_devices = False  # over slots instead
        self.add_callback(_Reseed())
        self.accelerator.prepare_model(self.model, evaluation_mode=True)  # so it is not wrapped
        self._gradients: SlotGradients | None = None
        self._step: Iterator[tuple[Slot, Any]] = iter(())
        self._inputs: collections.deque[Any] = collections.deque()

    def _check_arguments(self) -> None:
        args, kind = self.args, str(self.accelerator.distributed_type.value)
        is_replicated = kind == "NO" or kind.startswith("MULTI_")
        if not is_replicated or args.n_gpu > 1 or self.get_tp_size() * self.get_cp_size() > 1:
            rule = "for a model that is whole in each process"
            raise validation.value_error(_NAME, "args", rule, kind)
        if self._slots % args.world_size:
            rule = f"a multiple of the {args.world_size} ranks"
            raise validation.value_error(_NAME, "slots", rule, self._slots)
        count = self._slots // args.world_size
        if args.gradient_accumulation_steps not in (1, count):
            rule = f"1 or {count}, for {self._slots} slots on {args.world_size} ranks"
            given = args.gradient_accumulation_steps
            raise validation.value_error(_NAME, "args.gradient_accumulation_steps", rule, given)
        if any(isinstance(each, FastseedCallback) for each in self.callback_handler.callbacks):
            rule = "without FastseedCallback, which SlotTrainer needs no more"
            raise validation.value_error(_NAME, "callbacks", rule, FastseedCallback.__name__)

    def get_train_dataloader(self) -> DataLoader[Any]:
        self._gradients, self._step = None, iter(())
        self._inputs.clear()
        base = super().get_train_dataloader()  # which drops unused columns
        settings = {name: getattr(base, name) for name in _LOADER}
        loader: DataLoader[Any] = DataLoader(
            base.dataset,
            self._train_batch_size,
            sampler=self._get_train_sampler(base.dataset),
            drop_last=self.args.dataloader_drop_last,
            **settings,
        )
        return steps(loader, slots=self._slots).loader

    def training_step(
        self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        self._inputs.append(inputs)
        slot, inputs = next(self._step, None) or self._begin(model)
        one = None
        if num_items_in_batch is not None:
            slot.weight = self._get_num_items_in_batch([inputs], self.args.device)
            one = torch.ones((), device=self.args.device)
        with api.fork_rng("slot", index=slot.number, distinct_over=()):
            loss: torch.Tensor = super().training_step(model, inputs, one)
        if self.accelerator.sync_gradients:  # the last of the step
            next(self._step, None)
        count: Any = self.args.gradient_accumulation_steps if one is None else num_items_in_batch
        return torch.div(loss, count)

    def _begin(self, model: torch.nn.Module) -> tuple[Slot, Any]:
        if self._gradients is None:
            self._gradients = SlotGradients(model, self._slots)
        self._step = self._gradients.step(self._taken())
        return next(self._step)

    def _taken(self) -> Iterator[Any]:
        while self._inputs:
            yield self._inputs.popleft()


class _Reseed(_transformers.TrainerCallback):  # type: ignore[misc]
    """Reseed for each epoch, before its order is read, and for each step."""

    def on_epoch_begin(self, args: Args, state: State, control: Control, **more: object) -> None:
        _common.begin_epoch(_TASK, int(state.epoch or 0), more.get("train_dataloader"))

    def on_step_begin(self, args: Args, state: State, control: Control, **more: object) -> None:
        _common.move_to(_TASK, int(state.epoch or 0), state.global_step)
