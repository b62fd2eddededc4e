"""Remove samples on every rank: alike, others on one rank, and in another step on one rank."""

from __future__ import annotations

import json
import os

import torch.distributed as dist
from torch.utils.data import DataLoader

import fastseed

dist.init_process_group("gloo")
rank = dist.get_rank()
fastseed.init(42)


def run(samples: int, step: int) -> str | list[int]:
    """Return the samples of this rank after ``step``, or the error."""
    loop = fastseed.data.steps(DataLoader(range(40), 2, shuffle=True), 1)
    seen = []
    try:
        for _, number, batch in loop:
            if number == step:
                loop.quarantine(samples)
            if number > step:
                seen += batch.tolist()
    except RuntimeError as error:
        return str(error)
    return seen


result = {"alike": run(7, 2), "samples": run(7 + rank, 2), "step": run(7, 2 + rank)}
print(json.dumps(result), flush=True)
dist.barrier()
os._exit(0)
