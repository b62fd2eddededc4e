"""A step of ``SlotGradients`` beside ``DistributedDataParallel`` with ``no_sync``, on gloo.

``python -m examples.elastic_cost.steps`` starts the ranks on this machine with one thread each.
Both run the same micro-batches, in turns. It prints the median time of a step;
``traffic.py`` counts what is sent.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fastseed
from benchmarks import machine

Step = Callable[[], None]
TOKENS, WIDTH, LAYERS, VOCABULARY = 64, 256, 4, 1000


class Transformer(nn.Module):
    """A small language model of 3.7 million parameters, without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.layers(self.embed(tokens)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def slot_step(model: nn.Module, batches: list[torch.Tensor], slots: int) -> Step:
    """Return a step of SlotGradients, whose blocks ``both_ways`` gives to both."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    gradients = fastseed.elastic.SlotGradients(model, slots, assignment="blocks")

    def step() -> None:
        for _, batch in gradients.step(batches):
            model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def ddp_step(model: nn.Module, batches: list[torch.Tensor], slots: int) -> Step:
    """Return a step of DDP, which exchanges gradients in the last micro-batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    scale = dist.get_world_size() / slots  # DDP divides by the number of ranks

    def step() -> None:
        for batch in batches[:-1]:
            with wrapped.no_sync():
                (wrapped(batch) * scale).backward()
        (wrapped(batches[-1]) * scale).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def both_ways(make: Callable[[], nn.Module], data: torch.Tensor) -> list[Step]:
    """Return a step of SlotGradients and one of DDP, after two of each that trained alike.

    Args:
        make: returns a model, of which a call returns the loss of a micro-batch.
        data: the micro-batches of all slots, of shape (slots, ...).
    """
    rank, ranks, slots = dist.get_rank(), dist.get_world_size(), len(data)
    batches = list(data[rank * slots // ranks : (rank + 1) * slots // ranks])
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(make())
    steps = [build(m, batches, slots)
             for build, m in zip((slot_step, ddp_step), models, strict=True)]  # fmt: skip
    for step in steps * 2:
        step()
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    return steps


def measure(step: Step) -> float:
    """Return the seconds of one step; all ranks begin together."""
    dist.barrier()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def rank_main(rank: int, ranks: int, samples: int, options: argparse.Namespace, out: Any) -> None:
    """Join the job, measure, leave it."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{options.port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    row = compare(samples, options)
    if rank == 0:
        out.put({"ranks": ranks, "slots": options.slots, "samples": samples, **row})
    dist.destroy_process_group()  # after the models: see examples/train_digits.py


def compare(samples: int, options: argparse.Namespace) -> dict[str, float]:
    """Return the median seconds of a step; a step takes as long as on the slowest rank."""
    fastseed.init(42)
    shape = (options.slots, samples, TOKENS)
    data = torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(1))
    steps = both_ways(Transformer, data)
    found = [[measure(step) for step in steps] for _ in range(options.steps)]
    every: list[list[list[float]]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(every, found)
    slowest = [[max(ways) for ways in zip(*row, strict=True)] for row in zip(*every, strict=True)]
    ours, theirs = (statistics.median(way) for way in zip(*slowest, strict=True))
    ratio = statistics.median(a / b for a, b in slowest)
    return {"fastseed_s": ours, "ddp_s": theirs, "ratio": ratio}


def main() -> None:
    """Run both ways in turn, with each number of ranks and of samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--samples", type=int, nargs="+", default=[4], help="of a slot")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--port", type=int, default=29531)
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl")
    options = parser.parse_args()
    out: Any = mp.get_context("spawn").SimpleQueue()
    rows = []
    for ranks, samples in itertools.product(options.ranks, options.samples):
        load = machine.OtherLoad()
        mp.spawn(rank_main, (ranks, samples, options, out), nprocs=ranks)
        row = {**out.get(), "other_load": load.processes()}
        rows.append(row)
        print(f"{ranks} ranks, {samples} samples a slot: {1e3 * row['fastseed_s']:.1f} ms, "
              f"DDP {1e3 * row['ddp_s']:.1f} ms, ratio {row['ratio']:.3f}, "
              f"{row['other_load'] or 0:.2f} of another process", flush=True)  # fmt: skip
    machine.append_lines(options.out, {"machine": machine.describe()}, *rows)


if __name__ == "__main__":
    main()
