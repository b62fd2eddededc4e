"""One rank of a job of two or four: fills DTensors on every mesh and compares full tensors.

``dtensor_fill.py FOLDER`` writes what was found to ``FOLDER/<rank>.json``: for each case whether
the gathered tensor is, bit for bit, what one process fills alone.
"""

import json
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import _StridedShard

import fastseed

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
KEY = 0x81B1E1C0FFEE0DD5_F00DCAFE12345678
FILLS = {
    "uniform_": (torch.float32, ()),
    "normal_": (torch.bfloat16, (0.5, 2.0)),
    "exponential_": (torch.float64, (3.0,)),
    "bernoulli_": (torch.uint8, (0.25,)),
    "randint_": (torch.int64, (-5, 2**40)),
}
MESHES = {2: [(2,), (1, 2)], 4: [(4,), (2, 2)]}
found = {}

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


def placements(mesh):
    """Ways to lay a matrix of 13 x 6 out on a mesh, even and uneven, with empty shards."""
    if mesh.ndim == 1:
        return [[Replicate()], [Shard(0)], [Shard(1)]]
    return [
        [Replicate(), Shard(0)],
        [Shard(0), Replicate()],
        [Shard(0), Shard(0)],
        [Shard(1), Shard(0)],
        [Shard(1), Shard(1)],
        [_StridedShard(0, split_factor=mesh.size(1)), Shard(0)],
    ]


def same(a, b):
    """Bit for bit: dtypes that have no equality of their own are compared as bytes."""
    a, b = (x.detach().contiguous().view(torch.uint8) for x in (a, b))
    return torch.equal(a, b)


def check_distributed(mesh, layout, shape):
    for name, (dtype, arguments) in FILLS.items():
        fill = getattr(fastseed.random, name)
        tensor = distribute_tensor(
            torch.zeros(shape, dtype=dtype), mesh, layout, src_data_rank=None
        )
        fill(tensor, KEY, *arguments, position=8)
        alone = fill(torch.zeros(shape, dtype=dtype), KEY, *arguments, position=8)
        yield same(tensor.full_tensor(), alone)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(12, 22)
        self.down = nn.Linear(22, 12)


def fill_all(model):
    for i, (name, parameter) in enumerate(sorted(model.named_parameters())):
        assert fastseed.random.normal_(parameter, KEY + i, std=0.02) is parameter, name


def check_model(parallelise):
    """Return whether all parameters of a parallel model are those of the model alone."""
    alone, model = Block(), Block()
    fill_all(alone)
    parallelise(model)
    assert any(isinstance(p, DTensor) for p in model.parameters())
    fill_all(model)
    whole = dict(alone.named_parameters())
    for name, parameter in model.named_parameters():
        full = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        yield same(full, whole[name])


def tensor_parallel(model, mesh):
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def both(model):
    mesh = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    tensor_parallel(model, mesh["tp"])
    fully_shard(model, mesh=mesh["dp"])
    if WORLD == 4:
        assert isinstance(model.up.weight.placements[0], _StridedShard)


def hybrid(model):
    names = ("replicate", "shard")
    fully_shard(model, mesh=init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=names))


def of_torch(mesh):
    """Torch's own initialization, under one seed on all ranks, gathered."""
    torch.manual_seed(1)
    tensor = distribute_tensor(torch.zeros(16, 4), mesh, [Shard(0)])
    return nn.init.normal_(tensor).full_tensor()


def sums_are_refused(mesh):
    tensor = DTensor.from_local(torch.zeros(3), mesh, [Partial()])
    try:
        fastseed.random.normal_(tensor, KEY)
    except ValueError as error:
        return [str(error)[:80], bool((tensor.to_local() == 0).all())]
    return "no error"


def attempt(case, check):
    try:
        found[case] = all(check)
    except Exception:
        found[case] = traceback.format_exc()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for shape in MESHES[WORLD]:
        mesh = init_device_mesh("cpu", shape)
        for layout in placements(mesh):
            for size in ((13, 6), (3, 2)):
                attempt(f"{shape} {layout} {size}", check_distributed(mesh, layout, size))
    line = init_device_mesh("cpu", (WORLD,))
    attempt("FSDP2", check_model(lambda model: fully_shard(model, mesh=line)))
    attempt("TP", check_model(lambda model: tensor_parallel(model, line)))
    attempt("FSDP2 over TP", check_model(both))
    attempt("HSDP", check_model(hybrid))
    torch.manual_seed(1)
    alone = nn.init.normal_(torch.zeros(16, 4))
    found["torch"] = {"mesh": of_torch(line).tolist(), "alone": alone.tolist()}
    found["sums"] = sums_are_refused(line)
    Path(sys.argv[1], f"{RANK}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # threads of gloo may abort an interpreter that ends in good order


main()
