"""Train with GRPO as one rank of two and print the completions of this rank, twice."""

import json
import sys
from pathlib import Path

import trl
from helpers.tiny_grpo import train

options = {"learning_rate": 0.0, "per_device_train_batch_size": 2}
seeded = train(Path(sys.argv[1]), **options)
plain = train(Path(sys.argv[1]), **options, kind=trl.GRPOTrainer)
waiting = {"per_device_train_batch_size": 2, "steps_per_generation": 2, "num_iterations": 2}
folder = Path(sys.argv[1]) / "waiting"
whole = train(folder, save_strategy="steps", save_steps=1, **waiting)
rest = train(folder / "rest", folder / "checkpoint-1", **waiting)
print(
    json.dumps({
        "seeded": seeded.texts, "plain": plain.texts, "resumed": rest.digest, "whole": whole.digest
    })
)  # fmt: skip
