"""A step of ``SlotGradients`` beside ``DistributedDataParallel`` with ``no_sync``, on gloo.

``python -m benchmarks.elastic_steps`` starts the ranks on this machine with one thread each. Both
run the same micro-batches, in turns. It prints the median time of a step, and the bytes that all
ranks send in one, counted by the kernel (``wchar`` of ``/proc/self/io``, on Linux).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fastseed
from fastseed.elastic.collector import SlotPlan

from . import machine

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


def slot_step(model: Transformer, batches: list[torch.Tensor], slots: int) -> Step:
    """Return a step of SlotGradients, whose blocks ``compare`` gives to both ways."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    gradients = fastseed.elastic.SlotGradients(model, slots, assignment="blocks")

    def step() -> None:
        for _, batch in gradients.step(batches):
            model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def ddp_step(model: Transformer, batches: list[torch.Tensor], slots: int) -> Step:
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


def bytes_written() -> int:
    """Return the bytes that this process has written so far, also to sockets; 0 if unknown."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/io").read_text().splitlines():
            if line.startswith("wchar:"):
                return int(line.split()[1])
    return 0


def measure(step: Step) -> tuple[float, int]:
    """Return the seconds and bytes of one step; all ranks begin together."""
    dist.barrier()
    before, start = bytes_written(), time.perf_counter()
    step()
    return time.perf_counter() - start, bytes_written() - before


def rank_main(rank: int, options: argparse.Namespace) -> None:
    """Join the job, measure, leave it."""
    torch.set_num_threads(1)
    address, ranks = f"tcp://127.0.0.1:{options.port}", options.ranks
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    compare(rank, options)
    dist.destroy_process_group()  # after the models: see examples/train_digits.py


def compare(rank: int, options: argparse.Namespace) -> None:
    """Measure on one rank; rank 0 prints."""
    ranks = options.ranks
    fastseed.init(42)
    shape = (options.slots, options.samples, TOKENS)
    data = torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(1))
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Transformer())
    batches = list(data[rank * options.slots // ranks : (rank + 1) * options.slots // ranks])
    steps = [build(m, batches, options.slots)
             for build, m in zip((slot_step, ddp_step), models, strict=True)]  # fmt: skip
    for step in steps * 2:
        step()
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    load = machine.OtherLoad()
    found = [[measure(step) for step in steps] for _ in range(options.steps)]
    every: list[list[list[tuple[float, int]]]] = [[] for _ in range(ranks)]
    dist.all_gather_object(every, found)
    if rank == 0:
        report(every, sum(4 * p.numel() for p in models[0].parameters()), options, load)


def report(
    every: list[list[list[tuple[float, int]]]],
    size: int,
    options: argparse.Namespace,
    load: machine.OtherLoad,
) -> None:
    """Print the medians over steps; a step takes as long as on the slowest rank.

    Args:
        every: seconds and bytes of [rank][step][way].
        size: bytes of the gradients.
    """
    ranks, slots = options.ranks, options.slots
    seconds, sent, most = [], [], []
    for way in (0, 1):
        rows = list(zip(*([step[way] for step in of_rank] for of_rank in every), strict=True))
        seconds.append([max(s for s, _ in row) for row in rows])
        sent.append(statistics.median(sum(b for _, b in row) for row in rows))
        most.append(statistics.median(max(b for _, b in row) for row in rows))
    ratios = [ours / theirs for ours, theirs in zip(*seconds, strict=True)]
    for label, times in zip(("SlotGradients", "DDP, no_sync"), seconds, strict=True):
        print(f"{label:>14}: {1e3 * statistics.median(times):.1f} ms a step (median)")
    print(f"ratio of the two, median over {len(ratios)} steps: {statistics.median(ratios):.3f}")
    plan = SlotPlan(slots, 0, ranks, assignment="blocks")
    sums = sum(map(len, plan.exchange(plan.micro_steps - 1)))
    # of all ranks together: a piece of each sum to each other rank, and the pieces of the mean
    least = size * (ranks - 1) * (sums / ranks + 1)
    print(f"sent: {sent[0] / 1e6:.2f} MB, {sent[0] / least:.4f} of {sums} sums and the mean; "
          f"DDP {sent[1] / 1e6:.2f} MB, ratio {sent[0] / max(sent[1], 1):.4f}; of the rank that "
          f"sends most {most[0] / max(most[1], 1):.4f}")  # fmt: skip
    print(f"other processes used {load.fraction() or 0:.0%} of the machine", flush=True)


def main() -> None:
    """Run both ways in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--samples", type=int, default=4, help="of a slot")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--port", type=int, default=29531)
    options = parser.parse_args()
    mp.spawn(rank_main, (options,), nprocs=options.ranks)


if __name__ == "__main__":
    main()
