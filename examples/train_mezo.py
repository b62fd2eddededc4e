"""Fine-tune without gradients: MeZO, whose whole training is a list of (seed, number).

    python examples/train_mezo.py --log mezo.json
    torchrun --standalone --nproc-per-node 4 examples/train_mezo.py --layout fsdp2
    python examples/train_mezo.py --replay mezo.json

A step moves all parameters along one random direction, there and back, and reads two losses
(Malladi et al., "Fine-Tuning Language Models with Just Forward Passes", 2023). The direction of a
step is a function of its seed, of the parameter's name and of the element, so nobody stores or
sends it. Ranks exchange two numbers a step, and the log alone gives the weights again. All
replicated runs and those under FSDP2 print the same SHA-256, on any number of ranks. Under tensor
parallelism losses may differ in their last digits, and so do the weights; the log of such a run
gives its weights on one rank.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, its defaults keep the group after its destruction
from demolib.transformer import Transformer, samples
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

import fastseed

SLOTS, BATCH = 8, 2  # parts of a batch, which may lie on any rank, and samples of a part
DISTANCE, RATE = 1e-3, 1e-3
CUT = {
    **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
    "attention.out": RowwiseParallel(),
    "feed_forward.up": ColwiseParallel(),
    "feed_forward.down": RowwiseParallel(),
}


def build(layout: str) -> nn.Module:
    """Return the model of this rank, initialized by name."""
    model = Transformer()
    with fastseed.nn.initialize(model):
        model.init_weights()
    if layout != "replicated":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model.blocks:
            if layout == "fsdp2":
                fully_shard(block, mesh=mesh)
            else:
                parallelize_module(block, mesh, CUT)
        if layout == "fsdp2":
            fully_shard(model, mesh=mesh)
    return model.eval().requires_grad_(False)


def loss_of(model: nn.Module, batches: list[list[torch.Tensor]]) -> float:
    """Return the mean loss of a step, the same number on all ranks."""
    losses = [
        F.cross_entropy(model(text).flatten(0, 1), following.flatten())
        for text, following in batches
    ]
    return fastseed.elastic.mean(losses).item()


@torch.no_grad()
def train(model: nn.Module, steps: int) -> tuple[list[tuple[int, float]], list[float]]:
    """Return the log, a (seed, number) for each step, and the losses."""
    loader = torch.utils.data.DataLoader(samples(), BATCH, shuffle=True, drop_last=True)
    log, losses = [], []
    for _, seed, batches in fastseed.data.steps(loader, epochs=1, slots=SLOTS):
        if seed == steps:
            break
        own = list(batches)  # both losses read the same samples
        with fastseed.nn.perturbed(model, seed=seed, scale=DISTANCE) as trial:
            ahead = loss_of(model, own)
            trial.flip()
            behind = loss_of(model, own)
        log.append((seed, (behind - ahead) / (2 * DISTANCE)))
        losses.append((ahead + behind) / 2)
        fastseed.nn.apply_log(model, log[-1:], lr=RATE)
    return log, losses


def digest(model: nn.Module) -> str:
    """Return the SHA-256 of all whole parameters."""
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        found.update(name.encode() + whole.numpy().tobytes())
    return found.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layout", choices=("replicated", "fsdp2", "tp"), default="replicated")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1234, help="master seed")
    parser.add_argument("--log", type=Path, help="file to write the log to")
    parser.add_argument("--replay", type=Path, help="a log to apply instead of training")
    args = parser.parse_args()
    torch.set_num_threads(1)  # as torchrun sets it; sums over threads would be cut otherwise
    rank = 0
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        rank = dist.get_rank()
    # The ranks of tensor parallelism read the same samples; all others divide them.
    mesh = {"dp": (0, 1), "tp": (rank, dist.get_world_size())} if args.layout == "tp" else None
    fastseed.init(args.seed, mesh=mesh)
    model = build(args.layout)
    if args.replay:
        log = json.loads(args.replay.read_text())
        fastseed.nn.apply_log(model, log, lr=RATE, each=True)  # rounded after every step, as then
    else:
        log, losses = train(model, args.steps)
        if rank == 0:
            print(f"loss of the first and the last 20 steps: {sum(losses[:20]) / 20:.4f} and "
                  f"{sum(losses[-20:]) / 20:.4f}")  # fmt: skip
    found = digest(model)
    if rank == 0:
        if args.log:
            args.log.write_text(json.dumps(log))
        print(f"{len(log)} steps: weights {found}", flush=True)
    del model  # before the group: see examples/train_digits.py
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
