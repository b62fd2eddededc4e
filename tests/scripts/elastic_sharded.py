"""One rank of a job that trains models with slots under ``fully_shard``, and prints digests.

``elastic_sharded.py MESH CASE ...``, with a mesh as 3 or 2x2 (replicas and shards). ``alone`` is a
whole model, which every rank trains for itself.
"""

from __future__ import annotations

import json
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

from fastseed.debug import digest
from fastseed.elastic import SlotGradients

SLOTS, WIDTH, TOKENS = 7, 10, 13  # no mesh but that of one rank divides them
HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)


class Block(nn.Module):
    """A layer of a transformer, with a parameter that one slot uses."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 33), nn.Linear(33, WIDTH)
        self.rare = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor, slot: int | None) -> torch.Tensor:
        x = x + self.attend(x, x, x, need_weights=False)[0]
        if slot == 2:
            x = x + self.rare
        return x + self.narrow(torch.relu(self.wide(self.norm(x))))


class Model(nn.Module):
    """Two layers between tied embeddings; a frozen parameter, an unused one, and buffers."""

    def __init__(self, case: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, TOKENS)
        self.head.weight = self.embed.weight
        self.frozen = nn.Parameter(torch.full((WIDTH,), 0.5), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))
        # torch has no BatchNorm on the CPU for half inputs and float32 statistics
        self.scale = nn.Identity() if case == "half" else nn.BatchNorm1d(WIDTH)
        self.recompute = case == "recomputed"

    def forward(self, tokens: torch.Tensor, slot: int | None) -> torch.Tensor:
        x = self.embed(tokens) + self.frozen
        x = self.scale(x.transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, slot, use_reentrant=False)
            else:
                x = block(x, slot)
        return self.head(x)


def build(case: str, sizes: list[int]) -> tuple[nn.Module, object]:
    """Return the model of a case, and the group that its slots are dealt over."""
    torch.manual_seed(1)
    model = Model(case)
    if case == "alone":
        groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        return model, groups[dist.get_rank()]
    if case == "tensor parallel":
        shape = (dist.get_world_size() // 2, 2)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
        for block in model.blocks:
            plan = {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}
            block.wide, block.narrow = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
            parallelize_module(block, mesh["tensor"], plan)
            fully_shard(block, mesh=mesh["data"])
        return fully_shard(model, mesh=mesh["data"]), mesh["data"]
    names = ("replicate", "shard")[-len(sizes) :]
    mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=names)
    policy = HALF if case == "half" else MixedPrecisionPolicy()
    again = case != "kept"
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=again)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=again)
    return model, None


def loss(model: nn.Module, tokens: torch.Tensor, slot: int | None) -> torch.Tensor:
    out = model(tokens, slot)
    return nn.functional.cross_entropy(out[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def train(case: str, sizes: list[int]) -> str:
    """Train three steps; return a digest of parameters, optimizer state and buffers."""
    model, group = build(case, sizes)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    ranks = getattr(group, "get_group", lambda: group)()
    rank, world = dist.get_rank(ranks), dist.get_world_size(ranks)
    gradients = SlotGradients(model, SLOTS, group=group)
    for step in range(3):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(step)
        batch = torch.randint(TOKENS, (SLOTS, 2, 6), generator=generator)
        for slot, tokens in gradients.step(batch[slot] for slot in range(rank, SLOTS, world)):
            loss(model, tokens, slot.number).backward()
        optimizer.step()
    found = {
        name: {"value": whole(p), **{k: whole(v) for k, v in optimizer.state.get(p, {}).items()}}
        for name, p in model.named_parameters()
    }
    return str(digest([found, dict(model.named_buffers())]))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor, slot: int) -> torch.Tensor:
        return self.out(self.experts[slot % 2](x))


def other_modules(frozen: bool = False) -> str:
    """Return the error where each rank runs another module with a group of its own."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Experts()
    for expert in model.experts:
        fully_shard(expert.requires_grad_(not frozen), mesh=mesh)
    fully_shard(model, mesh=mesh)
    gradients = SlotGradients(model, dist.get_world_size())
    try:
        for slot, x in gradients.step([torch.ones(1, WIDTH)]):
            model(x, slot.number).sum().backward()
    except RuntimeError as error:
        assert all(p.grad is None for p in model.parameters())
        return str(error)
    return "no error"


def replicas_differ() -> str:
    """Return the error where the shards of replicas differ."""
    names = ("replicate", "shard")
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=names)
    torch.manual_seed(dist.get_rank())
    model = fully_shard(nn.Linear(WIDTH, 1), mesh=mesh)
    try:
        for _, x in SlotGradients(model, 2).step([torch.ones(1, WIDTH)]):
            model(x).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "no error"


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    sizes = [int(size) for size in sys.argv[1].split("x")]
    cases = sys.argv[2:]
    found = {case: OTHERS[case]() if case in OTHERS else train(case, sizes) for case in cases}
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(found))


OTHERS = {
    "other modules": other_modules,
    "other frozen modules": lambda: other_modules(frozen=True),
    "replicas differ": replicas_differ,
}

main()
