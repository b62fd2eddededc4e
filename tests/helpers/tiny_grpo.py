"""A GRPO run of a GPT-2 with two layers of 16 numbers, whose reward is the number of odd digits."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import tokenizers
import torch
import transformers
import trl

from fastseed.debug import digest
from fastseed.integrations.transformers import FastseedCallback
from fastseed.integrations.trl import SeededGRPOTrainer

PROMPTS = ["1+1=", "1+1=", "2+13=", "4+4=", "5+55=", "6+1="]  # two of equal text
NAMES = ["a", "b", "c", "d", "e", "f"]
_WORDS = ["<pad>", "<eos>", " ", *"0123456789+="]


class Run(NamedTuple):
    """The weights of a run, as a digest, and its completions."""

    digest: str
    texts: list[tuple[int, str, str]]
    """Step, name of the prompt and completion, in order of step and name."""


def tokenizer() -> Any:
    words = {word: number for number, word in enumerate(_WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=" "))
    each = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    made.pre_tokenizer = each  # type: ignore[assignment]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token=" "
    )


def model() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            n_layer=2, n_embd=16, n_head=2, vocab_size=len(_WORDS), n_positions=32,
            bos_token_id=None, eos_token_id=1, pad_token_id=0,
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config)


def dataset() -> Any:
    return datasets.Dataset.from_dict({"prompt": PROMPTS, "name": NAMES})


def make(
    folder: Path, texts: list[Any], kind: type[Any] = SeededGRPOTrainer, **options: Any
) -> Any:
    """Return a trainer that notes the completions in ``texts``."""
    transformers.logging.set_verbosity_error()
    logging.getLogger("accelerate").setLevel(logging.ERROR)

    def odd_digits(
        completions: list[str], name: list[str], trainer_state: Any, **more: object
    ) -> list[float]:
        assert not [key for key in more if "fastseed" in key]
        step = trainer_state.global_step
        texts.extend((step, *row) for row in zip(name, completions, strict=True))
        return [float(sum(map(text.count, "13579"))) for text in completions]

    own = {"callbacks", "train_dataset", "eval_dataset", "rollout_func", "tools"}
    extra = {name: options.pop(name) for name in own & options.keys()}
    arguments = {
        "per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 6,
        "max_steps": 4, "learning_rate": 0.01, "save_strategy": "no", "use_cpu": True,
        "bf16": False, "gradient_checkpointing": False, "report_to": [], "disable_tqdm": True,
        "logging_strategy": "no",
    }  # fmt: skip
    return kind(
        model=model(),
        reward_funcs=odd_digits,
        args=trl.GRPOConfig(output_dir=str(folder), **(arguments | options)),
        processing_class=tokenizer(),
        **{"train_dataset": dataset(), "callbacks": [FastseedCallback(42)], **extra},
    )


def train(folder: Path, resume: Path | None = None, **options: Any) -> Run:
    texts: list[tuple[int, str, str]] = []
    trainer = make(folder, texts, **options)
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    weights = dict(trainer.model.state_dict())
    return Run(str(digest(weights)), sorted(texts))
