"""Digests of models that are trained with slots under ``fully_shard``, or replicated."""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from fastseed.debug import digest
from fastseed.elastic import SlotGradients

SLOTS = 7  # no multiple of any number of ranks but 1


class Block(nn.Module):
    """A layer of a transformer; sizes that no number of ranks divides."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 33), nn.Linear(33, width)
        self.rare = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        x = x + self.attend(x, x, x, need_weights=False)[0]
        if number == 2:  # in one slot only
            x = x + self.rare
        return x + self.narrow(torch.relu(self.wide(self.norm(x))))


class Model(nn.Module):
    """Two layers between tied embeddings, one frozen parameter, one that is never used."""

    def __init__(self, width: int = 10) -> None:
        super().__init__()
        self.embed = nn.Embedding(13, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, 13)
        self.head.weight = self.embed.weight
        self.frozen = nn.Parameter(torch.full((width,), 0.5), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, tokens: torch.Tensor, number: int) -> torch.Tensor:
        x = self.embed(tokens) + self.frozen
        for block in self.blocks:
            x = block(x, number)
        return self.head(x)


def build(kind: str, layout: str) -> nn.Module:
    torch.manual_seed(1)
    model = Model()
    if kind == "plain":
        return model
    shape = tuple(map(int, layout.split("x")))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    policy = MixedPrecisionPolicy()
    if kind == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def train(model: nn.Module, slots: int = SLOTS, steps: int = 3) -> str:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    gradients = SlotGradients(model, slots)
    losses = nn.CrossEntropyLoss()
    for step in range(steps):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(13, (slots, 2, 6), generator=generator)
        for slot, batch in gradients.step(tokens[s] for s in range(rank, slots, ranks)):
            number = slot.number if slot.number is not None else 2
            out = model(batch, number)
            losses(out[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten()).backward()
        optimizer.step()
    state = {
        n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in model.named_parameters()
    }
    moments = {
        n: {
            k: v.full_tensor() if isinstance(v, DTensor) else v
            for k, v in optimizer.state[p].items()
        }
        for n, p in model.named_parameters()
        if p in optimizer.state
    }
    if "-v" in sys.argv:
        for n, v in state.items():
            print(
                rank,
                n,
                digest(v.detach()),
                n in moments and {k: digest(v) for k, v in moments[n].items()},
            )
    return str(digest([{n: v.detach() for n, v in state.items()}, moments]))


if __name__ == "__main__":
    kind, layout = sys.argv[1:3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    result = train(build(kind, layout))
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(result))
