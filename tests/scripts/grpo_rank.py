"""Train with GRPO as one rank of two and print the completions of this rank."""

import json
import sys
from pathlib import Path

from helpers.tiny_grpo import train

done = train(Path(sys.argv[1]), learning_rate=0.0, per_device_train_batch_size=2, num_generations=4)
print(json.dumps(done.texts))
