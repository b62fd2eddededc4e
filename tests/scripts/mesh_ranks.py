"""One rank of a job of four or eight: what it draws on several real meshes.

Prints as JSON, for each mesh and each ``distinct_over``, what every kind of stream draws, and what
wrapping a model and torch's own DTensor do to that.
"""

import json
import logging
import os
import random
import warnings

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, _random, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import fastseed

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NAMES = ("dp", "tp", "pp")
SHAPES = {4: [(4, 1, 1), (2, 2, 1), (1, 2, 2)], 8: [(2, 2, 2), (2, 4, 1), (8, 1, 1), (1, 2, 4)]}
DISTINCT_OVER = {
    "default": None,
    "dp": ("dp",),
    "pp dp": ("pp", "dp"),
    "none": (),
}

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


def draws():
    """A number of each kind of stream."""
    seeds = []
    fastseed.register_generator(seeds.append)
    fastseed.reseed(1, 7)
    found = {
        "python": random.random(),
        "numpy": np.random.random(),
        "torch": torch.rand(()).item(),
        "registered": seeds[0],
        "key": str(fastseed.derive_key("torch.cpu", task=1, epoch=7)),
    }
    with fastseed.fork_rng("tensor-parallel", distinct_over=NAMES):
        found["forked"] = torch.rand(()).item()
    return found


def on_meshes():
    for shape in SHAPES[WORLD]:
        where = init_device_mesh("cpu", shape, mesh_dim_names=NAMES)
        for name, distinct_over in DISTINCT_OVER.items():
            fastseed.init(42, mesh=where, distinct_over=distinct_over)
            s = fastseed.derivation.context.seeder
            yield {
                "shape": shape,
                "distinct_over": name,
                "coordinates": where.get_coordinate(),
                "draws": draws(),
                "data": [s.data_rank, s.data_world_size],
            }


def backwards():
    """A mesh in which ranks have another order: coordinates count, not ranks."""
    where = DeviceMesh("cpu", torch.arange(WORLD).flip(0).view(2, -1), mesh_dim_names=("a", "b"))
    fastseed.init(42, mesh=where, data_over=("a",))
    return [
        fastseed.derivation.context.seeder.rank,
        fastseed.derivation.context.seeder._rank_fields.default,
    ]


def refused():
    """Return the errors of init for invalid meshes, on this rank."""
    line = init_device_mesh("cpu", (WORLD,))
    both = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    other = {"dp": (RANK, WORLD)} if RANK else {"dp": (WORLD, WORLD)}  # wrong on rank 0 alone
    found = []
    for where in (line, both["dp"], other):
        try:
            fastseed.init(42, mesh=where)
            found.append("nothing")
        except ValueError as error:
            found.append(str(error))
    return found


def state():
    return torch.get_rng_state().tolist()


def wrapped():
    """Seeds, draws and initialization before and after a model is wrapped."""
    where = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    fastseed.init(42, mesh=where, distinct_over=("dp",))

    def seen(model):
        fastseed.reseed(0)
        begin = state()
        with fastseed.fork_rng("parameters", distinct_over=()):
            key = fastseed.derive_key("parameters/torch.cpu", task=0)
            for i, (_, parameter) in enumerate(sorted(model.named_parameters())):
                fastseed.random.normal_(parameter, key + i)
        whole = [getattr(p, "full_tensor", lambda p=p: p)() for p in model.parameters()]
        return (
            [t.detach().tolist() for t in whole],
            begin,
            state(),
            torch.rand(3).tolist(),
            str(key),
        )

    alone = seen(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6)))
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6))
    fastseed.reseed(0)
    begin = state()
    parallelize_module(model, where["tp"], {"0": ColwiseParallel()})
    fully_shard(model, mesh=where["dp"])
    wrapping_draws = state() != begin
    return {"same": seen(model) == alone, "wrapping draws": wrapping_draws}


def tracker():
    """Return what torch's DTensor does to the generators that reseed set, on a mesh of CPUs."""
    where = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    fastseed.init(42, mesh=where)
    fastseed.reseed(1, 7)
    begin = state()
    try:
        _random.manual_seed(1, where)
        seeded = state() == begin
    except Exception as error:  # as DTensor's tracker refuses CPUs where it is made
        seeded = type(error).__name__
    found = {"manual_seed changes nothing": seeded, "tracker": [_random._rng_tracker is None]}
    for placements in ([Replicate(), Replicate()], [Shard(0), Replicate()]):
        fastseed.derivation.context.seeder._set_scope(1, 7, 0)
        tensor = distribute_tensor(torch.zeros(8, 2), where, placements, src_data_rank=None)
        nn.init.uniform_(tensor)
        after = state()
        fastseed.derivation.context.seeder._set_scope(1, 7, 0)
        local = torch.rand(tensor.to_local().shape)
        found[type(placements[0]).__name__] = [tensor.to_local().equal(local), after == state()]
        found["tracker"].append(_random._rng_tracker is None)
    fastseed.derivation.context.seeder._set_scope(1, 7, 0)
    with fastseed.fork_rng("parameters", distinct_over=()):
        common = nn.init.uniform_(distribute_tensor(torch.zeros(4), where, [Replicate()] * 2))
    found["shared"] = common.to_local().tolist()
    found["state"] = state() == begin
    return found


def checkpointed():
    """Dropout in a parallel region under activation checkpointing; the two masks of each rank."""
    where = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    fastseed.init(42, mesh=where, distinct_over=("dp",))
    fastseed.reseed(1, 7)
    masks = []

    def region(x):
        masks.append([nn.functional.dropout(torch.ones(16)).tolist()])
        with fastseed.fork_rng("tensor-parallel", index=0, distinct_over=("dp", "tp")):
            masks[-1].append(nn.functional.dropout(torch.ones(16)).tolist())
        return x * torch.tensor(masks[-1]).sum()

    y = torch.utils.checkpoint.checkpoint(
        region,
        torch.ones(1, requires_grad=True),
        use_reentrant=False,
    )
    (y * y).sum().backward()
    return masks


def main():
    dist.init_process_group("gloo")
    found = {
        "meshes": list(on_meshes()),
        "backwards": backwards(),
        "refused": refused(),
        "wrapped": wrapped(),
        "tracker": tracker(),
        "checkpointed": checkpointed(),
    }
    print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # threads of gloo may abort an interpreter that ends in good order


main()
