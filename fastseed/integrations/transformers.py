"""A callback for the Trainer of Hugging Face transformers, and tokens from seeds for `generate`.

from fastseed.integrations.transformers import FastseedCallback, SeededTokens

trainer = Trainer(model=model, args=arguments, ..., callbacks=[FastseedCallback(42)])
trainer.train(resume_from_checkpoint=...)

tokens = SeededTokens([7, 8], temperature=0.8)  # a seed for each row
model.generate(input_ids, do_sample=False, logits_processor=[tokens])
"""

from __future__ import annotations

import functools
import logging
import math
import os
import re
from typing import TYPE_CHECKING, Any

import torch

from .._utils import StateDict, validation
from ..checkpoint import files as checkpoint
from ..data import Loader
from ..data.order.nested import samplers_in
from ..derivation import scopes
from ..sampling import sample
from ..sampling.arguments import Keys
from ..sampling.thresholds import Integers, Numbers
from ..seeder import api
from ..seeder.seeder import current_seeder
from . import _common
from ._common import Tasks, move_to, order_key

if TYPE_CHECKING:
    from transformers import TrainerControl as Control
    from transformers import TrainerState as State
    from transformers import TrainingArguments as Args

logger = logging.getLogger("fastseed")

_NAME = "integrations.transformers.FastseedCallback"
_FILE = "fastseed-{rank:05d}.state"
_ORDER = "transformers.order"
_SEED_BITS = 31
_transformers: Any = _common.import_framework("transformers", "transformers")


class FastseedCallback(_transformers.TrainerCallback):  # type: ignore[misc]
    """Reseed at each epoch, keep evaluation apart, and make a resumed run exact.

    - When training begins: ``fastseed.init``, unless the script has called it, with the rank
      and world size of the arguments. The order of the data gets its seed from the master seed:
      that of Accelerate's sampler, and of every other one with an attribute ``generator``, such as
      TRL's ``RepeatSampler``, in each epoch. On several ranks, a sampler without it is named in a
      warning.
    - Each epoch: ``reseed(tasks.train, epoch)``, when the last step of the epoch before is done, so
      that a checkpoint of that step has the states in which the next epoch begins.
    - Evaluation that the Trainer schedules runs at ``(tasks.validate, epoch)``; then training
      continues exactly where it was. The Trainer has no event before an ``evaluate`` or
      ``predict`` that the script calls: put ``fastseed.integrations.run_in_task`` around it.
    - The epoch of a dataset of ``fastseed.data.per_sample`` is set. Without per_sample, the
      random numbers of the batch that was fetched ahead of a checkpoint differ after resuming.
    - Checkpoints: the Trainer saves the global generators. The file ``fastseed-<rank>.state``
      (``fastseed.checkpoint``) holds all states, also of registered generators, and is loaded
      when training resumes mid-epoch.

    The Trainer seeds all ranks alike from ``TrainingArguments.seed`` when it is made and before
    ``model_init``: random numbers there follow that seed.

    The phases move the scope and the generators of the process: train in one thread at a time.

    Args:
        master_seed: for ``init``; None: the one of the script, or a random one.
        tasks: the task numbers.

    Raises:
        TypeError, ValueError: an argument is wrong, here or when training begins.
    """

    def __init__(
        self,
        master_seed: int | None = None,
        *,
        tasks: Tasks = Tasks(),  # noqa: B008 (a tuple)
    ) -> None:
        self._master_seed, self._tasks = _common.check_arguments(_NAME, master_seed, tasks)
        self._outer: StateDict | None = None  # training's state, around an evaluation
        self._is_inside = False  # the generators are in the evaluation's scope now
        self._resume: str | None = None  # a file to load at the next step
        self._samplers: list[Any] = []  # of the training data

    @property
    def tasks(self) -> Tasks:
        """The task numbers."""
        return self._tasks

    # ------------------------------------------------------------------ training

    def on_train_begin(self, args: Args, state: State, control: Control, **more: object) -> None:
        """Call ``init`` if needed and seed the order of the data."""
        _common.ensure_seeder(_NAME, self._master_seed, args.process_index, args.world_size)
        self._outer, self._is_inside, self._resume = None, False, None
        _check_folder(str(args.output_dir))
        loader = more.get("train_dataloader")  # fastseed's seeds its own samplers
        found: list[Any] = samplers_in(loader)[1:]
        self._samplers = [] if isinstance(loader, Loader) else found
        _seed_accelerate(self._samplers, self._tasks.train)
        if args.world_size > 1:
            _name_unseeded(self._samplers)
        if state.global_step and not _is_whole(state.epoch):
            self._resume = _saved_file(args, state)
        if getattr(args, "eval_on_start", False):
            move_to(self._tasks.validate, 0)

    def on_epoch_begin(self, args: Args, state: State, control: Control, **more: object) -> None:
        """Reseed for a training epoch."""
        self._is_inside = False
        task, epoch = self._tasks.train, int(state.epoch or 0)
        move_to(task, epoch)
        _seed_generators(self._samplers, task, epoch)
        dataset = getattr(more.get("train_dataloader"), "dataset", None)
        set_scope = getattr(dataset, "set_scope", None)
        if callable(set_scope):  # per_sample, in workers
            set_scope(task, epoch)

    def on_step_begin(self, *event: object, **more: object) -> None:
        """Leave an evaluation; resume from a file."""
        self._leave_evaluation()
        self._outer = None
        if self._resume is not None:
            checkpoint.load(self._resume)
            self._resume = None

    def on_step_end(self, args: Args, state: State, control: Control, **more: object) -> None:
        """Reseed at the end of an epoch; enter an evaluation that is due."""
        if _is_whole(state.epoch):
            move_to(self._tasks.train, round(state.epoch or 0))
        self._enter_evaluation(state, control)

    def on_epoch_end(self, args: Args, state: State, control: Control, **more: object) -> None:
        """Leave an evaluation; enter one that is due."""
        self._leave_evaluation()
        self._enter_evaluation(state, control)

    # ------------------------------------------------------------------ evaluation, checkpoints

    def _enter_evaluation(self, state: State, control: Control) -> None:
        """Reseed for an evaluation that is due: the Trainer has no event just before it."""
        if control.should_evaluate:
            self._outer = current_seeder(_NAME).state_dict(rng=True)
            epoch = max(0, math.ceil(state.epoch or 0) - 1)  # of the step that is done
            move_to(self._tasks.validate, epoch)
            self._is_inside = True

    def _leave_evaluation(self, *event: object, **more: object) -> None:
        """Restore the generators of training."""
        if self._is_inside and self._outer is not None:
            api.load_state_dict(self._outer)
        self._is_inside = False

    on_evaluate = on_train_end = _leave_evaluation

    def on_prediction_step(self, *event: object, **more: object) -> None:
        """Note an evaluation: of a second one after the same step there is no other event."""
        self._is_inside = self._outer is not None

    def on_save(self, args: Args, state: State, control: Control, **more: object) -> None:
        """Write all states into the folder of the checkpoint."""
        self._leave_evaluation()
        folder = _folder(args, state)
        if os.path.isdir(folder):
            checkpoint.save(os.path.join(folder, _FILE), rng=True)


class SeededTokens(_transformers.LogitsProcessor):  # type: ignore[misc]
    """Choose the tokens of ``generate`` by a seed for each row.

    ``fastseed.sampling.sample`` chooses them, as a function of the logits and the seed of a
    row: not of the batch, the slot or the padding. Give it to ``generate`` with
    ``do_sample=False``, as the last of the processors, and temperature and filters to this class:
    it leaves one token in each row. So it does with ``do_sample=True``, which
    ``num_return_sequences`` needs. Make one for each call of ``generate``; a second call continues
    at the next position. Positions count the calls of the processor: do not use it with beams,
    which would search nothing, nor with an assistant model or prompt lookup,
    which call it for tokens that they discard.

    Args:
        keys: one for each row of the batch, as ``sample`` takes them: seeds, (B, 2) torch.uint64 or
            a StreamBank. With ``num_return_sequences``, the rows of a prompt are consecutive.
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
        >>> both = model.generate(prompts, logits_processor=[tokens], **more)
        >>> tokens = SeededTokens([8], temperature=0.8)
        >>> alone = model.generate(prompts[1:], logits_processor=[tokens], **more)
        >>> bool((both[1] == alone[0]).all())
        True
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
        tokens: Any = self._sample(scores, self._keys, self._position)
        self._position += 1
        return torch.full_like(scores, -torch.inf).scatter(1, tokens[:, None], 0.0)


def _is_whole(epoch: float | None) -> bool:
    """Return True if an epoch has just ended; the Trainer counts steps done over steps in it."""
    return bool(epoch) and float(epoch or 0).is_integer()


def _folder(args: Args, state: State) -> str:
    return os.path.join(str(args.output_dir), f"checkpoint-{state.global_step}")


def _saved_file(args: Args, state: State) -> str | None:
    """Return the file that ``on_save`` wrote into the checkpoint that training resumes from."""
    named = args.resume_from_checkpoint
    folders = [named] if isinstance(named, str) and os.path.isdir(named) else []
    for folder in (*folders, _folder(args, state)):
        names = (_FILE.format(rank=rank) for rank in (0, args.process_index))
        if any(os.path.exists(os.path.join(folder, name)) for name in names):
            return os.path.join(folder, _FILE)
    if list(current_seeder(_NAME)._registry):
        logger.warning(
            "fastseed: there is no %s in %s: registered generators restart the epoch",
            _FILE.format(rank=args.process_index),
            _folder(args, state),
        )
    return None


def _check_folder(folder: str) -> None:
    """Refuse a folder in which ``fastseed.checkpoint`` would read a rank."""
    if re.search(r"\{rank(:0\dd)?\}", folder):
        rule = "without {rank}: each rank writes a file of its own into the same folder"
        raise validation.value_error(_NAME, "output_dir of the arguments", rule, folder)


# ------------------------------------------------------------------ the order of the data


def _seed_accelerate(samplers: list[Any], task: int) -> None:
    """Seed Accelerate's sampler, which took torch's current seed, another one on each rank."""
    key = order_key(_NAME, _ORDER, task)
    for sampler in samplers:
        if hasattr(sampler, "initial_seed") and hasattr(sampler, "set_epoch"):
            sampler.initial_seed = key & ((1 << _SEED_BITS) - 1)


def _seed_generators(samplers: list[Any], task: int, epoch: int) -> None:
    """Seed the samplers' own generators, which continue from epoch to epoch, on all ranks alike."""
    key = order_key(_NAME, _ORDER, task, epoch)
    for sampler in samplers:
        if _has_generator(sampler):
            if sampler.generator is None:
                sampler.generator = torch.Generator()
            sampler.generator.manual_seed(key & scopes.MAX_MASTER)


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
                "fastseed: if %s draws its order at random, the ranks get different ones and "
                "samples are lost: give it an attribute generator, a torch.Generator, which the "
                "callback seeds",
                type(sampler).__name__,
            )
