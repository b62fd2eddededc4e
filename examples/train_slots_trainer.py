"""A Trainer of Hugging Face transformers with the same weights on any number of ranks.

    python examples/train_slots_trainer.py --out demo-output/slots
    torchrun --nproc-per-node 2 examples/train_slots_trainer.py --out demo-output/two
    torchrun --nproc-per-node 2 examples/train_slots_trainer.py --out demo-output/slots --resume

All print one digest of the weights. Copy ``SlotTrainer`` into a script of yours: a step is the
mean of ``slots`` micro-batches (``fastseed.elastic.SlotGradients``). The model is replicated,
without DistributedDataParallel; the Trainer clips, steps, schedules and saves as ever.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.data import DataLoader

import fastseed
from fastseed.elastic import SlotGradients

LOADER = ("collate_fn", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor")


class SlotTrainer(transformers.Trainer):
    """A Trainer whose steps are the mean of slots, which the number of ranks must divide.

    - A slot has ``per_device_train_batch_size`` samples. ``gradient_accumulation_steps`` is set.
    - What the forward pass of a slot draws from torch's generators is a function of step and slot.
      Wrap the dataset in ``per_sample`` if it draws. Leave ``FastseedCallback`` out.
    - Where the Trainer counts the items of a step, such as tokens, the mean is over those of all
      slots: the loss must then be a sum that is divided by ``num_items_in_batch``.
    - The losses in the log depend on the number of ranks.
    """

    loss_is_scaled_for_ga = True  # the mean over slots is taken once, at the end

    def __init__(self, *arguments: Any, slots: int, **more: Any) -> None:
        super().__init__(*arguments, **more)
        kind, ranks = str(self.accelerator.distributed_type.value), self.args.world_size
        is_replicated = kind == "NO" or kind.startswith("MULTI_")
        if not is_replicated or self.args.n_gpu > 1 or self.get_tp_size() * self.get_cp_size() > 1:
            raise ValueError(f"the model must be whole in each process, got {kind}")
        if slots < 1 or slots % ranks:
            raise ValueError(f"slots must be a multiple of the {ranks} ranks, got {slots}")
        if self.args.gradient_accumulation_steps not in (1, slots // ranks):
            raise ValueError(f"gradient_accumulation_steps must be 1 or {slots // ranks}")
        self._slots = slots
        self.args.gradient_accumulation_steps = slots // ranks
        self.args.average_tokens_across_devices = False  # over slots instead
        self.add_callback(Reseed())
        self.accelerator.prepare_model(self.model, evaluation_mode=True)  # so it is not wrapped
        self._gradients: SlotGradients | None = None

    def get_train_dataloader(self) -> DataLoader[Any]:
        self._gradients = None
        base = super().get_train_dataloader()  # which drops unused columns
        loader: DataLoader[Any] = DataLoader(
            base.dataset,
            self._train_batch_size,
            sampler=self._get_train_sampler(base.dataset),
            drop_last=self.args.dataloader_drop_last,
            **{name: getattr(base, name) for name in LOADER},
        )
        return fastseed.data.steps(loader, slots=self._slots).loader

    def training_step(
        self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        if self._gradients is None:
            self._gradients = SlotGradients(model, self._slots)
        one = None
        with self._gradients.slot() as slot:
            if num_items_in_batch is not None:
                slot.weight = self._get_num_items_in_batch([inputs], self.args.device)
                one = torch.ones((), device=self.args.device)
            with fastseed.fork_rng("slot", index=slot.number, distinct_over=()):
                loss: torch.Tensor = super().training_step(model, inputs, one)
        if self.accelerator.sync_gradients:  # the last of the step
            self._gradients.finish()
        count: Any = self.args.gradient_accumulation_steps if one is None else num_items_in_batch
        return torch.div(loss, count)


class Reseed(transformers.TrainerCallback):
    """Reseed for each epoch, before its order is read, and for each step."""

    def __init__(self) -> None:
        self._at: tuple[int, int] | None = None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: object) -> None:
        at = int(state.epoch or 0), state.global_step
        if at != self._at:
            fastseed.reseed(1, *at)
        self._at = at

    on_step_begin = on_epoch_begin


class Texts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Texts of different lengths."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(8) * (i + 1)) % 32
        labels = torch.where(torch.arange(8) < 4 + i % 4, tokens, -100)
        return {"input_ids": tokens, "labels": labels}


def model() -> transformers.GPT2LMHeadModel:
    fastseed.reseed(0)  # the task of building the model
    sizes = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    made = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    with fastseed.fork_rng("model", index=0, distinct_over=()):  # the same on all ranks
        return transformers.GPT2LMHeadModel(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo-output/slots"))
    parser.add_argument("--slots", type=int, default=6)
    parser.add_argument("--resume", action="store_true", help="from the checkpoint of step 2")
    given = parser.parse_args()
    arguments = transformers.TrainingArguments(
        output_dir=str(given.out), num_train_epochs=2, per_device_train_batch_size=2,
        learning_rate=0.02, max_grad_norm=0.5, save_strategy="steps", save_steps=2, use_cpu=True,
        report_to=[], disable_tqdm=True,
    )  # fmt: skip
    torch.set_num_threads(1)  # on every number of ranks
    fastseed.init(42)
    trainer = SlotTrainer(model=model(), args=arguments, train_dataset=Texts(), slots=given.slots)
    checkpoint = str(given.out / "checkpoint-2") if given.resume else None
    trainer.train(resume_from_checkpoint=checkpoint)
    print(f"weights {fastseed.debug.digest(dict(trainer.model.state_dict()))}")


if __name__ == "__main__":
    main()
