"""Train one small transformer on any number of ranks: weights, optimizer and losses are the same.

    python examples/train_same_weights.py
    torchrun --standalone --nproc-per-node 3 examples/train_same_weights.py
    torchrun --standalone --nproc-per-node 4 examples/train_same_weights.py --layout hsdp

A step is eight slots, whatever the number of ranks. ``data.steps(slots=8)`` gives each slot its
samples, and ``elastic.SlotGradients`` adds the gradients of the slots in one order. All runs print
the same SHA-256, and so does a run that was killed and resumed on another number of ranks from its
last checkpoint. ``--layout ddp`` is the control: DistributedDataParallel, torch's clipping.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.nn  # imported later, its defaults keep the group after its destruction
from demolib.transformer import Transformer, samples
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import fastseed

SLOTS, BATCH = 8, 2  # micro-batches of a step, samples of a micro-batch
TRAINING = 1  # the task of data.steps


def build(layout: str) -> nn.Module:
    """Return the model of this rank, initialized."""
    with torch.device("meta"):
        model = Transformer()
    fastseed.nn.convert(model)
    if layout in ("fsdp2", "hsdp"):
        ranks = dist.get_world_size()
        shape, names = ((ranks,), ("shard",))
        if layout == "hsdp":
            shape, names = ((2, ranks // 2), ("replicate", "shard"))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    with fastseed.nn.initialize(model):
        model.init_weights()
    return model


class PlainGradients:
    """The control: DistributedDataParallel, which adds gradients in an order of its own."""

    slots, assignment = SLOTS, "deal"

    def __init__(self, model: nn.Module) -> None:
        self.model = DistributedDataParallel(model)

    def step(self, batches: Iterable[Any]) -> Iterator[tuple[fastseed.elastic.Slot, Any]]:
        ranks, own = dist.get_world_size(), list(batches)
        for j, batch in enumerate(own):
            slot = fastseed.elastic.Slot(j * ranks + dist.get_rank())
            last = j + 1 == len(own)
            reduce = contextlib.nullcontext() if last else self.model.no_sync()
            with reduce, fastseed.nn.rows(slot.number, SLOTS, count=1):
                yield slot, batch
        for parameter in self.model.parameters():
            parameter.grad.mul_(ranks / SLOTS)  # DDP divides by the number of ranks


class Checkpoint:
    """Everything that a run resumes with, in a folder for each checkpoint."""

    def __init__(self, folder: Path | None, model: nn.Module, optimizer: Any, parts: Any) -> None:
        self.folder, self.model, self.optimizer, self.parts = folder, model, optimizer, parts

    def save(self, losses: list[float]) -> None:
        if self.folder is None:
            return
        name = f"step{len(losses):06}"
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=self.folder / name)
        if is_first():  # only now does the checkpoint count
            rest = {key: part.state_dict() for key, part in self.parts.items()}
            torch.save(rest | {"losses": losses}, self.folder / "new.pt")
            (self.folder / "new.pt").rename(self.folder / f"{name}.pt")

    def load(self) -> list[float]:
        """Load the newest checkpoint, if there is one, and return the losses of its steps."""
        found = sorted(self.folder.glob("step*.pt")) if self.folder is not None else []
        names: list[Any] = [found[-1] if found else None]
        if dist.is_initialized():
            dist.broadcast_object_list(names)
        if names[0] is None:
            return []
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=names[0].with_suffix(""))
        set_state_dict(
            self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer
        )
        rest = torch.load(names[0], weights_only=True)
        for key, part in self.parts.items():
            part.load_state_dict(rest[key])
        return list(rest["losses"])


def is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def digest(tree: Any) -> str:
    """Return the SHA-256 of the bytes of all tensors and numbers, by name."""
    found = hashlib.sha256()
    leaves, _ = torch.utils._pytree.tree_flatten_with_path(tree)
    for path, leaf in sorted((str(path), leaf) for path, leaf in leaves):
        raw = leaf.numpy().tobytes() if isinstance(leaf, torch.Tensor) else repr(leaf).encode()
        found.update(path.encode() + raw)
    return found.hexdigest()


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Train, and return the digests of the result, equal on all ranks."""
    fastseed.init(args.seed)
    model = build(args.layout)
    run: nn.Module = model
    if args.layout == "ddp":
        gradients: Any = PlainGradients(model)
        run, clip = gradients.model, nn.utils.clip_grad_norm_
    else:
        gradients = fastseed.elastic.SlotGradients(model, SLOTS)
        clip = fastseed.elastic.clip_grad_norm_
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    loader = torch.utils.data.DataLoader(samples(), BATCH, shuffle=True, drop_last=True)
    steps = fastseed.data.steps(loader, epochs=100, task=TRAINING, slots=gradients)
    checkpoint = Checkpoint(args.out, model, optimizer, {"schedule": schedule, "data": steps})

    losses = checkpoint.load()
    for _, _, batches in steps:
        if len(losses) == args.steps:
            break
        if args.out is not None:
            (args.out / f"rank{os.environ.get('RANK', 0)}").write_text(
                f"{os.getpid()} {len(losses)}"
            )
        parts = []
        for slot, (text, following) in gradients.step(batches):
            with torch.autocast("cpu", torch.bfloat16, enabled=args.autocast):
                output = run(text)
            loss = F.cross_entropy(output.float().flatten(0, 1), following.flatten())
            loss.backward()
            if not slot.is_padding:
                parts.append(loss.detach())
        clip(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(fastseed.elastic.mean(parts).item())
        if len(losses) % args.save_every == 0:
            checkpoint.save(losses)
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, states = get_state_dict(model, optimizer, options=whole)
    return {"weights": digest(weights), "optimizer": digest(states), "losses": losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    layouts = ("replicated", "fsdp2", "hsdp", "ddp")
    parser.add_argument("--layout", choices=layouts, default=layouts[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--autocast", action="store_true", help="compute in bfloat16")
    parser.add_argument("--seed", type=int, default=1234, help="master seed")
    parser.add_argument("--out", type=Path, help="folder of checkpoints, to resume from")
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    parser.add_argument("--result", type=Path, help="file to write digests and losses to")
    args = parser.parse_args()
    torch.set_num_threads(1)  # as torchrun sets it; sums over threads would be cut otherwise
    fastseed.deterministic()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    found = train(args)
    if is_first():
        text = json.dumps(found["losses"])
        shown = {**found, "losses": hashlib.sha256(text.encode()).hexdigest()}
        print(*(f"{key} {value}" for key, value in shown.items()), sep="\n")
        if args.result is not None:
            args.result.write_text(json.dumps(found))
    gc.collect()  # fully_shard's model, in cycles, would end gloo's threads with the interpreter
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
