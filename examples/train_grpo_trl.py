"""Train with TRL's GRPO so that a run that is killed and resumed equals the uninterrupted one.

    python examples/train_grpo_trl.py --out demo-output/trl
    python examples/train_grpo_trl.py --out demo-output/killed --kill 3     # ends by SIGKILL
    python examples/train_grpo_trl.py --out demo-output/killed --resume

The first and the last command print one SHA-256 of the weights. The model is a GPT-2 of two small
layers with random weights, made on the spot, and a completion is rewarded for its odd digits.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

import datasets
import tokenizers
import torch
import transformers
import trl

import fastseed
from fastseed.integrations.transformers import FastseedCallback
from fastseed.integrations.trl import SeededGRPOTrainer

WORDS = ["<pad>", "<eos>", " ", *"0123456789+="]
PROMPTS = [f"{a}+{b}=" for a in range(4) for b in range(4)]


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    words = {word: number for number, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=" "))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token=" "
    )


def model() -> transformers.GPT2LMHeadModel:
    fastseed.reseed(0)  # the task of building the model
    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 32, "vocab_size": len(WORDS)}
    marks = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **marks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo-output/trl"))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--kill", type=int, help="the step at which the process kills itself")
    parser.add_argument("--resume", action="store_true", help="from the last checkpoint")
    given = parser.parse_args()

    def odd_digits(completions, trainer_state, **more):
        if trainer_state.global_step == given.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return [float(sum(map(text.count, "13579"))) for text in completions]

    fastseed.init(42)
    trainer = SeededGRPOTrainer(
        model=model(),
        reward_funcs=odd_digits,
        args=trl.GRPOConfig(
            output_dir=str(given.out), max_steps=given.steps, save_steps=1, learning_rate=0.01,
            per_device_train_batch_size=4, num_generations=4, max_completion_length=6,
            use_cpu=True, bf16=False, report_to=[],
        ),
        train_dataset=datasets.Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tokenizer(),
        callbacks=[FastseedCallback()],
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=given.resume)
    weights: dict[str, torch.Tensor] = dict(trainer.model.state_dict())
    print(f"weights {fastseed.debug.digest(weights)}")


if __name__ == "__main__":
    main()
