"""Initialize GPT-2 (124M) under FSDP2 on 4 ranks: in place by name, or whole and scattered.

``python -m benchmarks.fsdp_initialization`` starts the ranks on this machine, on gloo with one
thread each, and prints the median seconds until all are done, and by how much a rank's memory grew.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import fastseed

from .cases.initialization import Gpt2


def sharded(world_size: int) -> Gpt2:
    """The model with memory for this rank's part only."""
    with torch.device("meta"):
        model = Gpt2()
    mesh = init_device_mesh("cpu", (world_size,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    return model


def by_name(world_size: int) -> Gpt2:
    """Each rank fills its own part."""
    model = sharded(world_size)
    with fastseed.nn.initialize(model):
        model.init_weights()
    return model


def whole_and_scattered(world_size: int) -> Gpt2:
    """Rank 0 draws all parameters; each is cut and its parts are sent."""
    model = sharded(world_size)
    first = dist.get_rank() == 0
    whole = dict(first_model().named_parameters()) if first else {}
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor)
        local = parameter.to_local()
        parts = None
        if first:
            rows = -(-parameter.shape[0] // world_size)
            parts = [torch.zeros(rows, *parameter.shape[1:]) for _ in range(world_size)]
            for part, piece in zip(parts, whole[name].detach().split(rows), strict=False):
                part[: len(piece)] = piece
        received = torch.empty(-(-parameter.shape[0] // world_size), *parameter.shape[1:])
        dist.scatter(received, parts)
        local.detach().copy_(received[: len(local)])
    return model


def first_model() -> Gpt2:
    """The whole model, initialized."""
    with torch.device("meta"):
        model = Gpt2()
    model.to_empty(device="cpu")
    model.init_weights()
    return model


def peak_mib() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rank_main(rank: int, world_size: int, rounds: int, way: str, port: int) -> None:
    """Time one way on one rank; rank 0 prints."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size)
    fastseed.init(42)
    build: Callable[[int], Gpt2] = {"by name": by_name, "scattered": whole_and_scattered}[way]
    before, seconds = peak_mib(), []
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        build(world_size)
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    grown: list[float] = [0.0] * world_size
    dist.all_gather_object(grown, peak_mib() - before)
    if rank == 0:
        print(f"{way:>10}: {statistics.median(seconds):.2f} s, {max(grown):.0f} MiB", flush=True)
    dist.destroy_process_group()


def main() -> None:
    """Run both ways in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for turn, way in enumerate(("by name", "scattered") * 2):
        arguments = (options.ranks, options.rounds, way, 29517 + turn)
        mp.spawn(rank_main, arguments, nprocs=options.ranks)


if __name__ == "__main__":
    main()
