"""Ways in which four ranks share a module with the layers ``up`` and ``down``."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard


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
