"""Train one small transformer on any parallel layout: the weights, masks and losses are the same.

    python examples/train_transformer_any_layout.py                      # every layout, compared
    torchrun --nproc-per-node 2 examples/train_transformer_any_layout.py --layout fsdp2

The model, in ``demolib/transformer.py``, predicts the next character of Python's own help pages. It
is written in plain torch, with dropout on embeddings, attention weights, hidden and residual
activations, and knows of no layout.
Three lines make its random numbers independent of the layout: ``fastseed.nn.convert`` for dropout,
``fastseed.nn.initialize`` for the weights, ``fastseed.nn.rows`` to say which rows a rank has.

Each layout trains with all random numbers from fastseed, and as negative controls with torch's own
initialization and torch's own dropout, although torch's generators too are seeded before each step.
The exit status is 0 only if the initial weights and the dropout masks of fastseed are the same bits
in all layouts, the losses agree to rounding, and those of torch differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, its defaults keep the group after its destruction
from demolib.layouts import TITLES, Comparison, draw
from demolib.masks import MaskLog, weights_digest
from demolib.transformer import Transformer, samples
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import fastseed

BATCH = 8


class Layout(NamedTuple):
    """How the ranks divide the batch and the model, and how a rank works through its part."""

    dp: int = 1
    tp: int = 1
    ddp: bool = False
    micro_batches: int = 1
    checkpoint: bool = False
    compiled: bool = False

    @property
    def ranks(self) -> int:
        return self.dp * self.tp


LAYOUTS = {
    "one": Layout(),
    "micro": Layout(micro_batches=4),
    "checkpoint": Layout(checkpoint=True),
    "compiled": Layout(compiled=True),
    "ddp": Layout(dp=2, ddp=True),
    "fsdp2": Layout(dp=2),
    "tp": Layout(tp=2),
    "fsdp2-tp": Layout(dp=2, tp=2),
    "fsdp2-tp-all": Layout(dp=2, tp=2, micro_batches=2, checkpoint=True),
}

# ------------------------------------------------------------------- the layouts

# Dropout inside of a tensor-parallel region sees a part of the heads or of the features on each
# rank, as a plain tensor; everything else is whole there.
PARTS = {"attention": Shard(1), "feed_forward": Shard(2)}


def build(layout: Layout, mesh: DeviceMesh, source: str) -> tuple[nn.Module, MaskLog]:
    """Return the model of this rank, initialized."""
    with torch.device("meta"):
        model = Transformer()
    masks = MaskLog(model, mesh, PARTS)
    keyed = source != "torch-dropout"
    if keyed:
        fastseed.nn.convert(model)
    for i, block in enumerate(model.blocks):
        if layout.tp > 1:
            columns, rows = ColwiseParallel(), RowwiseParallel()
            plan = {f"attention.{name}": columns for name in "qkv"} | {"attention.out": rows}
            plan |= {"feed_forward.up": columns, "feed_forward.down": rows}
            parallelize_module(block, mesh["tp"], plan)
        if layout.tp > 1 and keyed:
            for name, part in PARTS.items():
                fastseed.nn.shard_inputs(block.get_submodule(name), mesh["tp"], [part])
        if layout.checkpoint:  # without the states of generators, which fastseed does not need
            block = model.blocks[i] = checkpoint_wrapper(block, preserve_rng_state=not keyed)
        if layout.dp > 1 and not layout.ddp:
            fully_shard(block, mesh=mesh["dp"])
    if layout.dp > 1 and not layout.ddp:
        fully_shard(model, mesh=mesh["dp"])
    model.to_empty(device="cpu")
    with nullcontext() if source == "torch-init" else fastseed.nn.initialize(model):
        model.init_weights()
    return model, masks


# ------------------------------------------------------------------- training


def train(layout: Layout, source: str, args: argparse.Namespace) -> dict[str, Any]:
    """Train on the ranks of the process group, and return what was logged, equal on all of them."""
    mesh = init_device_mesh("cpu", (layout.dp, layout.tp), mesh_dim_names=("dp", "tp"))
    # torch's own generators: one stream a rank, shared by the ranks of a tensor-parallel group
    fastseed.init(args.seed, mesh=mesh, distinct_over=("dp",))
    model, masks = build(layout, mesh, source)
    weights = weights_digest(model)
    run: nn.Module = model
    if layout.ddp:
        run = DistributedDataParallel(model, process_group=mesh["dp"].get_group())
    elif layout.compiled:
        run = torch.compile(model, backend=args.backend, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    batch = BATCH // layout.dp
    loader = torch.utils.data.DataLoader(samples(), batch, shuffle=True, drop_last=True)
    losses, digests = [], []
    for _, step, (text, following) in fastseed.data.steps(loader, epochs=1, task=1):
        total = torch.zeros(())
        for part in range(layout.micro_batches):
            x, y = (t.chunk(layout.micro_batches)[part] for t in (text, following))
            with fastseed.nn.rows.of_micro_batch(len(x), part, layout.micro_batches):
                loss = F.cross_entropy(run(x).flatten(0, 1), y.flatten()) / layout.micro_batches
                loss.backward()
            total += loss.detach()
            masks.end_micro_batch()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total, group=mesh["dp"].get_group())
        losses.append(total.item() / layout.dp)
        digests.append(masks.end_step())
        if step + 1 == args.steps:
            break
    return {"weights": weights, "masks": digests, "losses": losses}


def work(rank: int, ranks: int, store: str, jobs: list[tuple[str, str]], args: Any) -> int:
    """Run jobs, (layout, source), in one of the processes; the first one writes the logs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    for name, source in jobs:
        found = train(LAYOUTS[name], source, args)
        if rank == 0:
            (args.out / f"{source}.{name}.json").write_text(json.dumps(found))
            shown = f"weights {found['weights'][:8]}, masks at the end {found['masks'][-1][:8]}"
            print(f"{source}, {name}: {shown}, loss {found['losses'][-1]:.4f}", flush=True)
    dist.destroy_process_group()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layout", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--random", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--seed", type=int, default=1234, help="master seed")
    parser.add_argument("--steps", type=int, default=40, help="at most one epoch")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--out", type=Path, default=Path("demo-output/layouts"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if "RANK" in os.environ:  # a rank that torchrun has started
        jobs = [(args.layout[0], source) for source in args.random]
        return work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://", jobs, args)

    names = list(dict.fromkeys(["one", *args.layout]))
    for ranks in sorted({LAYOUTS[name].ranks for name in names}):
        here = [name for name in names if LAYOUTS[name].ranks == ranks]
        jobs = [(name, source) for source in args.random for name in here]
        with tempfile.TemporaryDirectory() as folder:
            given = (ranks, f"file://{folder}/store", jobs, args)
            torch.multiprocessing.spawn(work, given, nprocs=ranks)
    comparisons = [Comparison.read(args.out, source, names) for source in args.random]
    print(*comparisons, sep="\n")
    if importlib.util.find_spec("matplotlib") is not None:
        draw(comparisons, args.out / "losses.png")
        print(f"\n{args.out / 'losses.png'}")
    return 0 if all(comparison.holds() for comparison in comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
