"""Train a small residual network and record every call of its modules, for `fastseed diff`.

    python examples/train_blocks.py runs/eager
    python examples/train_blocks.py runs/compiled --compile
    torchrun --nproc-per-node 2 examples/train_blocks.py runs/two   # FSDP2, the batch in halves

`docs/first-difference.md` compares these runs, and one in which `flip_bit.py` flips a bit.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, its defaults keep the group after its destruction
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import fastseed

WIDTH = BATCH = 64


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(6))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network and record its calls.")
    parser.add_argument("folder", help="where the recording is written")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    args = parser.parse_args()

    rank, ranks, mesh = 0, 1, None
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
        rank, ranks = dist.get_rank(), dist.get_world_size()
        mesh = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(42)
    model: nn.Module = Net()
    if mesh is not None:
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if args.compile:
        model = torch.compile(model)

    with fastseed.debug.Watch(
        model, optimizer, path=args.folder, modules=True, batch_mesh=mesh
    ) as watch:
        for step in range(args.steps):
            data = torch.Generator().manual_seed(step)  # of the whole batch, on every rank
            images = torch.randn(BATCH, WIDTH, generator=data).chunk(ranks)[rank]
            labels = torch.randint(10, (BATCH,), generator=data).chunk(ranks)[rank]
            loss = nn.functional.cross_entropy(model(images), labels, reduction="sum") / BATCH
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                parameter.grad *= ranks  # the losses of ranks are parts of one sum, not a mean
            optimizer.step()
            watch.record()
    if mesh is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
