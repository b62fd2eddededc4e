"""One rank of a job that splits the vocabulary: the tokens of test_sample.py, as JSON."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sampling"))

from test_sample import FILTERS, POSITIONS, V, keys, logits

from fastseed.sampling import find_threshold, merge, sample

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
first, end = V * RANK // WORLD, V * (RANK + 1) // WORLD
part = logits()[:, first:end]
found = []
for filters in FILTERS:
    heat = filters.get("temperature", 1.0)
    threshold = find_threshold(part, **filters, vocab_offset=first, group=dist.group.WORLD)
    tokens, scores = sample(
        part, keys(), POSITIONS, temperature=heat, vocab_offset=first, threshold=threshold,
        return_scores=True,
    )  # fmt: skip
    all_tokens, all_scores = ([torch.empty_like(t) for _ in range(WORLD)] for t in (tokens, scores))
    dist.all_gather(all_tokens, tokens)
    dist.all_gather(all_scores, scores)
    found.append(merge(torch.stack(all_tokens), torch.stack(all_scores)).tolist())
dist.destroy_process_group()
print(json.dumps(found))
