"""One rank of two: the same training under DDP and FSDP2, recorded with and without a planted bit.

``watch_ranks.py FOLDER`` records into ``FOLDER/<how>-<a or b>``.
"""

import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import fastseed

warnings.simplefilter("ignore")
RANK, FOLDER = int(os.environ["RANK"]), Path(sys.argv[1])
STEPS, AT = 4, 2


def model_of(how):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 11), nn.BatchNorm1d(11), nn.ReLU(), nn.Linear(11, 3))
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    if how == "fsdp2":
        fully_shard(model)
    return model


def plant(model):
    """One bit of the last weight: the shard of rank 1, which has the last row."""
    *_, weight, _ = model.parameters()
    local = weight.to_local() if isinstance(weight, DTensor) else weight.detach()
    if RANK == 1:
        local.view(torch.int32)[-1, -1] ^= 1


def run(how, planted):
    model = model_of(how)
    optimizer = torch.optim.Adam(model.parameters())
    with fastseed.debug.Watch(
        model, optimizer, path=FOLDER / f"{how}-{'b' if planted else 'a'}"
    ) as watch:
        for step in range(STEPS):
            optimizer.zero_grad()
            x = torch.randn(5, 6, generator=torch.Generator().manual_seed(100 * step + RANK))
            model(x).square().mean().backward()
            optimizer.step()
            if planted and step == AT:
                plant(model)
            watch.record()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    for how in ("ddp", "fsdp2"):
        for planted in (False, True):
            run(how, planted)
    fastseed.debug.Watch(model_of("alone"), path=FOLDER / "alone").close()
    dist.barrier()
    os._exit(0)  # threads of gloo may abort an interpreter that ends in good order


main()
