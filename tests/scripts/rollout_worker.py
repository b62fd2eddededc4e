"""A worker of an RL job: print the seeds of its chunks of prompts, and what was loaded.

rollout_worker.py WORKER WORKERS CHUNKS
"""

import json
import sys

import fastseed

PROMPTS, SAMPLES = 48, 16


def main() -> None:
    worker, workers, chunks = map(int, sys.argv[1:])
    size = PROMPTS // chunks
    seeds = {}
    for chunk in range(worker, chunks, workers):
        prompts = [f"prompt {i}" for i in range(chunk * size, (chunk + 1) * size)]
        rows = fastseed.rollouts.seeds(59, prompts, SAMPLES, task=1).tolist()
        seeds.update(zip(prompts, rows, strict=True))
    loaded = [name for name in ("torch", "fastseed._generators") if name in sys.modules]
    print(json.dumps({"seeds": seeds, "loaded": loaded}))


main()
