"""Train with GRPO as one rank of two and print the completions of this rank, twice."""

import json
import sys
from pathlib import Path

import trl
from helpers.tiny_grpo import train

options = {"learning_rate": 0.0, "per_device_train_batch_size": 2}
seeded = train(Path(sys.argv[1]), **options)
plain = train(Path(sys.argv[1]), **options, kind=trl.GRPOTrainer)
print(json.dumps({"seeded": seeded.texts, "plain": plain.texts}))
