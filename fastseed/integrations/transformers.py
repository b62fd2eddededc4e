"""A callback for the Trainer of Hugging Face transformers, and tokens from seeds for `generate`.

trainer = Trainer(model=model, args=arguments, ..., callbacks=[FastseedCallback(42)])
trainer.train(resume_from_checkpoint=...)
"""

from __future__ import annotations

import functools
import math
import os
from typing import TYPE_CHECKING, Any

import torch

from .._utils import StateDict, validation
from .._utils.log import logger
from ..checkpoint import files as checkpoint
from ..data import Loader
from ..data.order.samplers import samplers_in
from ..sampling import sample
from ..sampling.arguments import Keys
from ..sampling.thresholds import Integers, Numbers
from ..seeder import api
from ..seeder.seeder import current_seeder
from . import _common
from ._common import TRAIN, VALIDATE, move_to, order_key

if TYPE_CHECKING:
    from transformers import TrainerControl as Control
    from transformers import TrainerState as State
    from transformers import TrainingArguments as Args

_NAME = "integrations.transformers.FastseedCallback"
_FILE = "fastseed-{rank:05d}.state"
_ORDER = "transformers.order"
_transformers: Any = _common.import_framework("transformers", "transformers")


class FastseedCallback(_transformers.TrainerCallback):  # type: ignore[misc]
    """Reseed at each epoch, keep evaluation apart, and make a resumed run exact.

    - When training begins: ``fastseed.init``, unless the script has called it. Accelerate's sampler
      and samplers with an attribute ``generator`` get seeds from the master seed.
    - Each epoch: ``reseed(1, epoch)``. Evaluation that the Trainer schedules runs at task 2; put
      ``fastseed.integrations.run_in_task`` around an ``evaluate`` that the script calls.
    - The epoch of a dataset of ``fastseed.data.per_sample`` is set. Without per_sample, the random
      numbers of the batch that was fetched ahead of a checkpoint differ after resuming.
    - Checkpoints also hold ``fastseed-<rank>.state``, the states of all generators.

    Random numbers before training follow ``TrainingArguments.seed``. Train in one thread at a time.

    Args:
        master_seed: for ``init``; None: the one of the script, or a random one.

    Raises:
        TypeError, ValueError: an argument is wrong, here or when training begins.
    """

    def __init__(self, master_seed: int | None = None) -> None:
        self._master_seed = master_seed
        self._outer: StateDict | None = None  # training's state, around an evaluation
        self._is_inside = False  # the generators are in the evaluation's scope now
        self._resume: str | None = None  # a file to load at the next step
        self._samplers: list[Any] = []  # of the training data

    def on_train_begin(self, args: Args, state: State, control: Control, **more: object) -> None:
        _common.ensure_seeder(_NAME, self._master_seed, args.process_index, args.world_size)
        self._outer, self._is_inside, self._resume = None, False, None
        loader = more.get("train_dataloader")  # fastseed's seeds its own samplers
        self._samplers = [] if isinstance(loader, Loader) else samplers_in(loader)[1:]
        _seed_accelerate(self._samplers)
        if args.world_size > 1:
            _name_unseeded(self._samplers)
        if state.global_step and not _is_whole(state.epoch):
            self._resume = _saved_file(args, state)
        if getattr(args, "eval_on_start", False):
            move_to(VALIDATE, 0)

    def on_epoch_begin(self, args: Args, state: State, control: Control, **more: object) -> None:
        self._is_inside = False
        epoch = int(state.epoch or 0)
        move_to(TRAIN, epoch)
        dataset = getattr(more.get("train_dataloader"), "dataset", None)
        if callable(set_scope := getattr(dataset, "set_scope", None)):  # of per_sample
            set_scope(TRAIN, epoch)
        _seed_generators(self._samplers, epoch)

    def on_step_begin(self, *event: object, **more: object) -> None:
        self._leave_evaluation()
        self._outer = None
        if self._resume is not None:
            checkpoint.load(self._resume)
            self._resume = None

    def on_step_end(self, args: Args, state: State, control: Control, **more: object) -> None:
        if _is_whole(state.epoch):
            move_to(TRAIN, round(state.epoch or 0))
        self._enter_evaluation(state, control)

    def on_epoch_end(self, args: Args, state: State, control: Control, **more: object) -> None:
        self._leave_evaluation()
        self._enter_evaluation(state, control)

    def _enter_evaluation(self, state: State, control: Control) -> None:
        """Reseed for an evaluation that is due: the Trainer has no event just before it."""
        if control.should_evaluate:
            self._outer = current_seeder(_NAME).state_dict(rng=True)
            epoch = max(0, math.ceil(state.epoch or 0) - 1)  # of the step that is done
            move_to(VALIDATE, epoch)
            self._is_inside = True

    def _leave_evaluation(self, *event: object, **more: object) -> None:
        if self._is_inside and self._outer is not None:
            api.load_state_dict(self._outer)
        self._is_inside = False

    on_evaluate = on_train_end = _leave_evaluation

    def on_prediction_step(self, *event: object, **more: object) -> None:
        """Note an evaluation: of a second one after the same step there is no other event."""
        self._is_inside = self._outer is not None

    def on_save(self, args: Args, state: State, control: Control, **more: object) -> None:
        self._leave_evaluation()
        folder = _folder(args, state)
        if os.path.isdir(folder):
            checkpoint.save(os.path.join(folder, _FILE), rng=True)


class SeededTokens(_transformers.LogitsProcessor):  # type: ignore[misc]
    """Choose the tokens of ``generate`` by a seed for each row.

    ``fastseed.sampling.sample`` chooses them, as a function of the logits and the seed of a row:
    not of the batch, the slot or the padding. Give it to ``generate`` as the last processor, with
    ``do_sample=False`` (``num_return_sequences`` needs True), and temperature and filters to this
    class. Make one for each call: positions count the calls of the processor, so do not use it with
    beams, an assistant model or prompt lookup.

    Args:
        keys: one for each row of the batch, as ``sample`` takes them.
        position: the position of the first token in its request, in [0, 2**56).
        temperature: as ``sample`` takes it; so are the others.
        top_k: 0 for all tokens.
        top_p: in (0, 1].
        min_p: in [0, 1].

    Raises:
        TypeError, ValueError: an argument is invalid; from ``generate``, as ``sample`` does.

    Examples:
        >>> import torch, transformers
        >>> from fastseed.integrations.transformers import SeededTokens
        >>> sizes = {"n_layer": 1, "n_embd": 8, "n_head": 1, "vocab_size": 20}
        >>> sizes |= {"bos_token_id": None, "eos_token_id": None}
        >>> model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
        >>> prompts = torch.tensor([[3, 1, 4], [1, 5, 9]])
        >>> more = {"do_sample": False, "max_new_tokens": 4, "pad_token_id": 0}
        >>> tokens = SeededTokens([7, 8], temperature=0.8)
        >>> model.generate(prompts, logits_processor=[tokens], **more).shape
        torch.Size([2, 7])
    """

    def __init__(
        self,
        keys: Keys,
        *,
        position: int = 0,
        temperature: Numbers = 1.0,
        top_k: Integers = 0,
        top_p: Numbers = 1.0,
        min_p: Numbers = 0.0,
    ) -> None:
        name = "integrations.transformers.SeededTokens"
        self._position = validation.check_int(name, "position", position, 0, 2**56 - 1)
        self._keys = keys
        self._sample = functools.partial(
            sample, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
        )

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores with -inf everywhere but at the token that is sampled."""
        tokens = self._sample(scores, self._keys, self._position)
        self._position += 1
        return torch.full_like(scores, -torch.inf).scatter(1, tokens[:, None], 0.0)


def _is_whole(epoch: float | None) -> bool:
    """Return True if an epoch has just ended; the Trainer counts steps done over steps in it."""
    return bool(epoch) and float(epoch or 0).is_integer()


def _folder(args: Args, state: State) -> str:
    return os.path.join(str(args.output_dir), f"checkpoint-{state.global_step}")


def _saved_file(args: Args, state: State) -> str | None:
    named = args.resume_from_checkpoint
    folder = named if isinstance(named, str) and os.path.isdir(named) else _folder(args, state)
    names = [_FILE.format(rank=rank) for rank in (0, args.process_index)]
    if any(os.path.exists(os.path.join(folder, name)) for name in names):
        return os.path.join(folder, _FILE)
    if list(current_seeder(_NAME).generators.registry):
        logger.warning(
            "fastseed: there is no %s in %s: registered generators restart the epoch",
            *(names[1], folder),
        )
    return None


def _seed_accelerate(samplers: list[Any]) -> None:
    """Seed Accelerate's sampler, which took torch's current seed, another one on each rank."""
    key = order_key(_NAME, _ORDER, TRAIN)
    for sampler in samplers:
        if hasattr(sampler, "initial_seed") and hasattr(sampler, "set_epoch"):
            sampler.initial_seed = key % 2**31


def _seed_generators(samplers: list[Any], epoch: int) -> None:
    """Seed the samplers' own generators, which continue from epoch to epoch, on all ranks alike."""
    key = order_key(_NAME, _ORDER, TRAIN, epoch)
    for sampler in samplers:
        if _has_generator(sampler):
            if sampler.generator is None:
                sampler.generator = torch.Generator()
            sampler.generator.manual_seed(key % 2**64)


def _has_generator(sampler: object) -> bool:
    found = getattr(sampler, "generator", 0)
    return found is None or isinstance(found, torch.Generator)


def _name_unseeded(samplers: list[Any]) -> None:
    """Name a sampler that may draw from the global generators, which differ between ranks."""
    known = ("torch.", "accelerate.", "fastseed.")
    for sampler in samplers:
        is_known = _has_generator(sampler) or type(sampler).__module__.startswith(known)
        if not is_known and samplers_in(sampler) == [sampler]:  # which wraps no other
            logger.warning(
                "fastseed: if %s draws its order at random, ranks get different orders: give it an "
                "attribute generator, a torch.Generator, which the callback seeds",
                type(sampler).__name__,
            )
