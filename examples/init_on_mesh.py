"""Initialize a model on a mesh of any size: the values are those of one device.

    python examples/init_on_mesh.py
    torchrun --nproc-per-node 4 examples/init_on_mesh.py --tensor-parallel 2

Every parameter is drawn from a key of its own, named after it, and each rank draws its own part and
nothing else. The SHA-256 of the full parameters, which is printed, is the same for every mesh.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, its defaults keep the group after its destruction
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import fastseed


class Block(nn.Module):
    """Attention and a feed-forward network, with norms before them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)


def initialize(model: nn.Module) -> None:
    for name, p in model.named_parameters():
        if p.dim() == 1:
            nn.init.constant_(p, float("norm" in name and name.endswith("weight")))
        else:
            fastseed.random.normal_(
                p, fastseed.derive_key(name, task=0, rank=fastseed.SHARED), std=0.02
            )


def digest(model: nn.Module) -> str:
    whole = hashlib.sha256()
    for name, p in sorted(model.named_parameters()):
        whole.update(name.encode() + p.full_tensor().detach().numpy().tobytes())
    return whole.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1234, help="master seed")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="ranks that share a layer")
    args = parser.parse_args()

    alone = {} if "RANK" in os.environ else {"rank": 0, "world_size": 1, "store": dist.HashStore()}
    dist.init_process_group("gloo", **alone)
    fastseed.init(master_seed=args.seed)
    shape = (dist.get_world_size() // args.tensor_parallel, args.tensor_parallel)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))

    with torch.device("meta"):  # no memory yet, and nothing drawn
        model = nn.Sequential(nn.Embedding(1000, 66), *(Block(66) for _ in range(2)))
    for block in model[1:]:
        plan = {"qkv": ColwiseParallel(), "out": RowwiseParallel()}
        plan |= {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(block, mesh["tensor"], plan)
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    model.to_empty(device="cpu")

    initialize(model)
    sha = digest(model)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks as {shape}: {sha}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
