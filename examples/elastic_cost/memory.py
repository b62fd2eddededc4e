"""The most memory that ``SlotGradients`` adds to a rank, beside the formula of the guide.

``python -m examples.elastic_cost.memory`` starts ranks on gloo, on Linux. A rank runs two steps of
a model of 25 million parameters by a plain backward pass, by ``SlotGradients`` with several numbers
of slots, and by ``DistributedDataParallel``. What counts is how far its resident memory rises above
that of the plain pass, in gradients of 4 bytes a parameter, where the plain ``p.grad`` is 1.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

import fastseed
from benchmarks import machine
from fastseed.elastic.collector import SlotPlan

LAYERS, WIDTH = 25, 1000
SLOTS = (1, 3, 4, 7, 8, 16)


def make_model() -> nn.Sequential:
    """Return 25 square matrices: no gradient alone is much memory."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def make_shards() -> nn.Sequential:
    """Return the model under ``fully_shard``, each matrix in a group of its own."""
    model = make_model()
    for part in (*model, model):
        fully_shard(part)
    return model


def plain(model: nn.Module, _: int) -> None:
    """Two steps without other ranks."""
    for _ in range(2):
        model(torch.ones(1, WIDTH)).mean().backward()
        model.zero_grad()


def by_slots(model: nn.Module, slots: int) -> None:
    """Two steps of SlotGradients."""
    gradients = fastseed.elastic.SlotGradients(model, slots)
    assignment = "deal" if isinstance(model, FSDPModule) else "blocks"
    plan = SlotPlan(slots, dist.get_rank(), dist.get_world_size(), assignment=assignment)
    for _ in range(2):
        for _, x in gradients.step([torch.ones(1, WIDTH)] * len(plan.own)):
            model(x).mean().backward()
        model.zero_grad()


def by_ddp(model: nn.Module, as_view: int) -> None:
    """Two steps of DDP."""
    plain(DistributedDataParallel(model, gradient_as_bucket_view=bool(as_view)), 0)


def resident(name: str) -> int:
    """Return VmRSS, or its peak VmHWM, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def rise(
    run: Callable[[nn.Module, int], None],
    argument: int = 0,
    make: Callable[[], nn.Module] = make_model,
) -> int:
    """Return how far the resident memory rises while a way runs on a new model."""
    model = make()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
    before = resident("VmRSS")
    run(model, argument)
    return resident("VmHWM") - before


def formula(slots: int, rank: int, ranks: int) -> float:
    """Return what a rank should hold, in gradients: partial sums, what it sends, what it owns."""
    if ranks == 1:
        return (slots + 1).bit_length() - 1
    plan = SlotPlan(slots, rank, ranks, assignment="blocks")
    sums = plan.exchange(plan.micro_steps - 1)
    own, every = sums[rank], [leaves for of_rank in sums for leaves in of_rank]
    depth = max(1, max(own, default=1).bit_length() - 1)
    partial = max(end.bit_count() for end in itertools.accumulate(every))
    return depth + (len(own) if len(own) > 1 else 0) + (len(every) + partial) / ranks


def rank_main(rank: int, ranks: int, port: int, out: Any) -> None:
    """Measure on one rank."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    fastseed.init(42)
    by_slots(make_model(), 1)  # loads what is loaded once
    by_ddp(make_model(), 1)
    plain(make_shards(), 0)
    gradients = 4 * LAYERS * WIDTH**2

    def put(way: str, bytes_: int, **more: Any) -> None:
        found = {"ranks": ranks, "rank": rank, "way": way, "measured": bytes_ / gradients}
        out.put({**found, **more})

    base = rise(plain) - gradients
    for as_view in (0, 1):
        put(f"DDP, gradient_as_bucket_view={bool(as_view)}", rise(by_ddp, as_view) - base)
    for slots in SLOTS:
        expected = formula(slots, rank, ranks)
        put("replicated", rise(by_slots, slots) - base, slots=slots, formula=expected)
    base = rise(plain, make=make_shards) - gradients // ranks
    for slots in (slots for slots in SLOTS if slots >= ranks):
        expected = ((slots + 1).bit_length() - 1) / ranks + 1 / LAYERS
        bytes_ = rise(by_slots, slots, make_shards) - base
        put("FSDP2", bytes_, slots=slots, formula=expected)
    out.put(None)
    dist.destroy_process_group()


def main() -> None:
    """Measure with each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--port", type=int, default=29532)
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl")
    options = parser.parse_args()
    # memory that is freed goes back to the system at once
    os.environ.update(MALLOC_MMAP_THRESHOLD_="65536", MALLOC_ARENA_MAX="1")
    rows = []
    for ranks in options.ranks:
        out: Any = mp.get_context("spawn").SimpleQueue()
        mp.spawn(rank_main, (ranks, options.port, out), nprocs=ranks)
        found = [row for _ in range(ranks) for row in iter(out.get, None)]
        rows += sorted(found, key=lambda row: (row["way"], row.get("slots", 0), row["rank"]))
    for row in rows:
        print("  ".join(f"{value:.2f}" if isinstance(value, float) else str(value)
                        for value in row.values()))  # fmt: skip
    machine.append_lines(options.out, {"machine": machine.describe()}, *rows)


if __name__ == "__main__":
    main()
