"""A GRPOTrainer whose completions depend on (step, prompt, sample) alone, and that resumes exactly.

trainer = SeededGRPOTrainer(model=model, args=arguments, ..., callbacks=[FastseedCallback(42)])
trainer.train(resume_from_checkpoint=...)
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Callable, Iterator, Sized
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset, IterableDataset, Sampler

from .._utils import atomic_file
from .._utils.log import logger
from .._utils.validation import type_error, value_error
from ..rollouts import seed
from . import _common
from .transformers import FastseedCallback, SeededTokens

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

_NAME = "integrations.trl.SeededGRPOTrainer"
_FILE = "fastseed-grpo-{rank:05d}.pt"
_KEY = "fastseed_rollout"  # of a row: the identity of its prompt, and the number of its sample
_UNSEEDED = ("use_vllm", "use_transformers_continuous_batching", "tools")
_UNSEEDED_OPTIONS = (
    "num_beams", "num_return_sequences", "typical_p", "epsilon_cutoff", "eta_cutoff", "top_h",
    "prompt_lookup_num_tokens", "assistant_early_exit", "penalty_alpha",
)  # fmt: skip
_trl: Any = _common.import_framework("trl", "trl")
_utils: Any = _common.import_framework("trl.trainer.utils", "trl")


class SeededGRPOTrainer(_trl.GRPOTrainer):  # type: ignore[misc]
    """TRL's ``GRPOTrainer``: a completion depends on its step, its prompt and its sample alone.

    Its ``callbacks`` must hold a ``FastseedCallback``, which seeds the rest: the order of the
    prompts, dropout, evaluation.

    - Sample k of row i of the dataset at optimizer step s has the seed
      ``rollouts.seed(s, i, k, task=1)`` and is sampled by ``SeededTokens``, without dropout. So its
      tokens depend neither on the batch nor on the ranks, as far as the logits do not.
    - In an evaluation the task is 2; a prompt of one of several datasets is ``"name/i"``.
    - Checkpoints also hold the rollouts that wait for their training steps, one file for each rank:
      with them, a run that was killed and resumed is the uninterrupted run.
    - A ``rollout_func`` finds the seeds of its prompts in ``trainer.rollout_seeds``.

    Raises:
        TypeError, ValueError: from ``train`` and ``evaluate``, for vLLM, continuous batching, tools
            and streamed datasets.
        RuntimeError: TRL generates in a way that is not known (tested with 1.16).
    """

    rollout_seeds: list[int]  # of the rows that are generated now

    def _get_dataloader(
        self,
        dataset: Any,
        *,
        sampler_fn: Callable[[Any], Any] | None = None,
        dataloader_key: str | None = None,
        **options: Any,
    ) -> DataLoader[Any]:
        self._check()
        if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
            raise type_error(_NAME, "dataset", "a dataset with a length, not a stream", dataset)
        prefix = "" if dataloader_key in (None, "eval") else f"{dataloader_key}/"
        loader: DataLoader[Any] = super()._get_dataloader(
            dataset=_Rows(dataset, prefix),
            sampler_fn=lambda rows: _Samples(sampler_fn(rows) if sampler_fn else None),
            dataloader_key=dataloader_key,
            **options,
        )
        return loader

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        task = _common.TRAIN if self.model.training else _common.VALIDATE
        step = self.state.global_step
        # one by one: a batch that is filled up has a rollout twice
        self.rollout_seeds = [seed(step, *row[_KEY], task=task) for row in inputs]
        plain = [{name: row[name] for name in row if name != _KEY} for row in inputs]
        if self.rollout_func is not None:
            found: dict[str, Any] = super()._generate_and_score_completions(plain)
            return found
        config = self.generation_config
        filters = {name: getattr(config, name) for name in ("top_k", "top_p", "min_p")}
        given = {name: value for name, value in filters.items() if value is not None}
        tokens = SeededTokens(self.rollout_seeds, temperature=config.temperature, **given)
        with _sampling_by(tokens, self.accelerator.unwrap_model(self.model_wrapped)):
            found = super()._generate_and_score_completions(plain)
        return found

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save also the rollouts that are not trained, before the file that ends a checkpoint."""
        name = f"checkpoint-{self.state.global_step}"
        folder = os.path.join(self._get_output_dir(trial=trial), name)
        os.makedirs(folder, exist_ok=True)
        whole = self._step % (self.args.steps_per_generation * self.num_iterations) == 0
        waiting = None if whole else self._buffered_inputs
        state = {"step": self._step, "ranks": self.args.world_size, "rollouts": waiting}
        torch.save(state, content := io.BytesIO())
        path = os.path.join(folder, _FILE.format(rank=self.args.process_index))
        atomic_file.replace(path, content.getvalue())
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        if self.args.sync_ref_model:
            logger.warning(
                "fastseed: TRL saves no reference model: with sync_ref_model a resumed run differs"
            )
        names = (_FILE.format(rank=rank) for rank in (self.args.process_index, 0))
        paths = [os.path.join(checkpoint, name) for name in names]
        path = next(filter(os.path.exists, paths), None)
        if path is None:
            logger.warning("fastseed: there is no %s: TRL generates again there", paths[0])
            return
        device = self.accelerator.device
        location = "cpu" if device.type == "cpu" else device  # torch.load knows no "cpu:0"
        state = torch.load(path, map_location=location, weights_only=True)
        waiting = state["rollouts"]
        made = (state["ranks"], len(state["rollouts"] or ()))
        if waiting and made != (self.args.world_size, self.args.steps_per_generation):
            rule = "of as many ranks and steps_per_generation, or one without rollouts that wait"
            raise value_error(_NAME, "checkpoint", rule, f"{made} in {checkpoint}")
        self._step, self._buffered_inputs = state["step"], waiting

    def _check(self) -> None:
        callbacks = self.callback_handler.callbacks
        if sum(isinstance(one, FastseedCallback) for one in callbacks) != 1:
            rule = "with one fastseed.integrations.transformers.FastseedCallback"
            raise value_error(_NAME, "callbacks", rule, callbacks)
        if self.args.remove_unused_columns:
            raise value_error(_NAME, "remove_unused_columns of the arguments", "False", True)
        if self.rollout_func is not None:
            return
        for name in _UNSEEDED:
            if getattr(self, name):
                rule = "off: TRL gives the generation no seed for each request there"
                raise value_error(_NAME, name, rule, getattr(self, name))
        for name in {*(self.args.generation_kwargs or ())}.intersection(_UNSEEDED_OPTIONS):
            rule = "without options that SeededTokens does not apply"
            raise value_error(_NAME, "generation_kwargs of the arguments", rule, name)


class _Rows(Dataset[dict[str, Any]]):
    """The rows of a dataset, by index and number of the sample, with their identities."""

    def __init__(self, dataset: Any, prefix: str) -> None:
        self.dataset, self._prefix = dataset, prefix
        self.set_scope = getattr(dataset, "set_scope", None)  # per_sample, for the callback

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, at: tuple[int, int]) -> dict[str, Any]:
        index, sample = at
        prompt = f"{self._prefix}{index}" if self._prefix else index
        return {**self.dataset[index], _KEY: (prompt, sample)}


class _Samples(Sampler[tuple[int, int]]):
    """The indices of TRL's sampler, which repeats them, with the number of each repetition."""

    def __init__(self, sampler: Any) -> None:
        if not isinstance(sampler, _utils.RepeatSampler):
            raise type_error(_NAME, "sampler", "TRL's RepeatSampler", sampler)
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for place, index in enumerate(self.sampler):
            yield index, place % self.sampler.mini_repeat_count


@contextlib.contextmanager
def _sampling_by(tokens: SeededTokens, model: Any) -> Iterator[None]:
    """Let the one call of ``model.generate`` in a block choose these tokens."""
    original, calls = model.generate, 0
    own = vars(model).get("generate")  # another library may have patched this model

    @functools.wraps(original)
    def generate(**options: Any) -> Any:
        nonlocal calls
        calls += 1
        active = [module for module in model.modules() if module.training]
        model.eval()  # TRL leaves dropout on, which draws by the batch
        try:
            return original(**options, do_sample=False, logits_processor=[tokens])
        finally:
            for module in active:
                module.training = True

    model.generate = generate
    try:
        yield
    finally:
        if own is None:
            del model.generate
        else:
            model.generate = own
    if calls != 1:
        raise RuntimeError(
            f"fastseed.{_NAME}: TRL called generate {calls} times for a batch, not once as TRL "
            "1.16 does: its completions have no seeds"
        )
