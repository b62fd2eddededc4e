"""Ways in which ranks share a tensor, and four a module with the layers ``up`` and ``down``."""

import functools
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard


@functools.cache
def mesh(*sizes: int) -> DeviceMesh:
    """Return a mesh of these ranks; each one that is made has groups of its own."""
    return init_device_mesh("cpu", sizes)


def layouts(shape: tuple[int, ...]) -> Iterator[tuple[DeviceMesh, list[Any]]]:
    """Yield meshes of these ranks and placements, even and uneven, also with empty shards."""
    cuts, line = [Shard(i) for i in range(len(shape))], mesh(dist.get_world_size())
    for one in (Replicate(), *cuts):
        yield line, [one]
    if line.size() != 4:
        return
    grid, first, last = mesh(2, 2), cuts[0], cuts[-1]
    pairs = [[Replicate(), first], [last, Replicate()], [first, first], [last, last], [last, first]]
    for pair in (*pairs, [first, last], [cuts[len(cuts) // 2]] * 2):
        yield grid, pair
    for i in {0, len(shape) - 1}:
        if shape[i] % 4 == 0:  # torch itself refuses to cut some others
            yield grid, [_StridedShard(i, split_factor=2), Shard(i)]


def fsdp(model):
    fully_shard(model, mesh=init_device_mesh("cpu", (4,)))


def tensor_parallel(model, mesh=None):
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, mesh or init_device_mesh("cpu", (4,)), plan)


def fsdp_over_tensor_parallel(model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    tensor_parallel(model, mesh["tp"])
    fully_shard(model, mesh=mesh["dp"])
    assert isinstance(model.up.weight.placements[0], _StridedShard)


def hybrid(model):
    names = ("replicate", "shard")
    fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=names))
