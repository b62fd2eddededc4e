"""Ranks of a job of 16 that is not there: which values real FSDP2 and DTensor shards hold.

Each rank is a fork of this process with torch's fake process group, which communicates nothing.
Parameters are index tensors before they are cut; what is left of them has to be what the pieces of
:mod:`fastseed.random.layout` say. Prints how many shards were right, and the wrong ones.
"""

import json
import os
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

import fastseed
from fastseed.random import layout

WORLD = 16
RANKS = (0, 7, 9, 12, 14, 15)
SIZES = (3, 16, 37, 38, 40)  # rows, over 4 x 4 ranks; all but the last uneven
LAYOUTS = (
    [Shard(0), Shard(1), Shard(0)],
    [Shard(1), Replicate(), Shard(1)],
    [Shard(0), Shard(0), Shard(0)],
)
KEY = 1 << 100 | 77
warnings.simplefilter("ignore")


def check(tensor, shape):
    """None, or what is wrong with a DTensor that was cut from the indices of its elements."""
    with torch.no_grad():
        local, pieces = layout.of_dtensor("check", tensor)
        held = torch.full(local.shape, -1.0)
        for box, sizes, strides, offset in pieces:
            found = torch.tensor(offset)
            for size, stride in zip(sizes, strides, strict=True):
                found = found[..., None] + torch.arange(size) * stride
            if not sizes:
                found = offset + torch.arange(held[box].numel())
            held[box] = found.reshape(held[box].shape).float()
        if not held.equal(local):
            return [str(tensor.placements), list(shape), local.tolist(), held.tolist()]
        whole = fastseed.random.normal_(torch.zeros(shape), KEY).view(-1)
        fastseed.random.normal_(tensor, KEY)
        if not whole[held.long()].equal(tensor.to_local()):
            return ["values", str(tensor.placements), list(shape)]
    return None


def indices(*shape):
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def parallel_layer(rows, style):
    """A weight of FSDP2 over tensor parallelism, on 4 x 4 ranks."""
    mesh = init_device_mesh("cpu", (4, 4), mesh_dim_names=("dp", "tp"))
    shape = (rows, 4) if style is ColwiseParallel else (4, rows)
    layer = torch.nn.Linear(*reversed(shape), bias=False)
    with torch.no_grad():
        layer.weight.copy_(indices(*shape))
    parallelize_module(layer, mesh["tp"], style(), src_data_rank=None)
    fully_shard(layer, mesh=mesh["dp"])
    return check(layer.weight, shape)


def distributed(layout):
    mesh = init_device_mesh("cpu", (2, 2, 4))
    return check(distribute_tensor(indices(11, 7), mesh, layout, src_data_rank=None), (11, 7))


def rank_main(rank):
    dist.init_process_group("fake", rank=rank, world_size=WORLD, store=FakeStore())
    yield from (parallel_layer(rows, ColwiseParallel) for rows in SIZES)
    yield from (parallel_layer(rows, RowwiseParallel) for rows in SIZES)
    yield from (distributed(layout) for layout in LAYOUTS)


def forked(rank):
    """A pipe with the findings of ``rank``, from a process of its own."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        try:
            found = list(rank_main(rank))
        except BaseException:
            found = [traceback.format_exc()]
        with os.fdopen(write, "w") as pipe:
            json.dump(found, pipe)
        os._exit(0)
    os.close(write)
    return os.fdopen(read)


torch.set_num_threads(1)
findings = [json.load(pipe) for pipe in [forked(rank) for rank in RANKS]]
right = sum(found is None for each in findings for found in each)
wrong = [found for each in findings for found in each if found is not None]
json.dump({"right": right, "wrong": wrong}, sys.stdout)
