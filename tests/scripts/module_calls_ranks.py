"""One rank of two: the calls of modules, recorded for one process, DDP, FSDP2 and tensor parallel.

``module_calls_ranks.py FOLDER`` records into ``FOLDER/<case>``.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from helpers.exact_model import Net, batch, flip_output
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

import fastseed

RANK, FOLDER = int(os.environ["RANK"]), Path(sys.argv[1])


def sharded(model, mesh):
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(model, mesh):
    plan = {}
    for i in range(2):
        plan |= {f"layers.{i}.up": ColwiseParallel(), f"layers.{i}.down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def run(case, model, *, split=None, plant=None, **options):
    x = batch().chunk(2)[RANK] if split is not None else batch()
    with fastseed.debug.Watch(
        model, path=FOLDER / case, groups=(), modules=True, batch_mesh=split, **options
    ) as watch:
        if plant is not None:  # after the hooks of the recording, before them in order
            flip_output(plant, element=5)
        model(x).sum().backward()
        watch.record()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    mesh = init_device_mesh("cpu", (2,))
    keep = {0: "layers.1.up"}
    run("alone", Net(), keep=keep)
    run("fsdp2", sharded(Net(), mesh))
    run("fsdp2-batch", sharded(Net(), mesh), split=mesh)
    around = lambda layer, x: checkpoint(layer, x, use_reentrant=False)  # noqa: E731
    run("fsdp2-checkpoint", sharded(Net(around), mesh), split=mesh)
    run("tp", tensor_parallel(Net(), mesh))
    ddp = torch.nn.parallel.DistributedDataParallel
    run("ddp-batch", ddp(Net()), split=mesh)
    model = Net()
    plant = model.layers[1].up if RANK == 1 else None
    run("ddp-batch-planted", ddp(model), split=mesh, plant=plant, keep=keep)
    dist.barrier()
    os._exit(0)  # threads of gloo may abort an interpreter that ends in good order


main()
