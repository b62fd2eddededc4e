"""One rank of a job of 1, 2 or 4: masks and gradients of a converted model in every layout.

Prints one line of JSON: for each case whether what the ranks have together is, bit for bit, what
one process has alone, and whether torch's own dropout is.
"""

import copy
import json
import logging
import os
import traceback
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import fastseed

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SHAPE = (8, 4, 6)
found = {}

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
torch.set_num_threads(1)


def alone(layer, x=None):
    """Return what one process has."""
    fastseed.derivation.context.seeder._set_scope(1, 0, 3)
    with fastseed.nn.rows(0, SHAPE[0]):
        return layer(torch.ones(SHAPE) if x is None else x)


def gathered(part):
    parts = [torch.empty_like(part) for _ in range(WORLD)]
    dist.all_gather(parts, part.detach().contiguous())
    return parts


def data_parallel(layer):
    """Rows in turn over the ranks, in two micro-batches."""
    count = SHAPE[0] // WORLD // 2
    whole = torch.empty(SHAPE)
    for micro in range(2):
        rows = fastseed.nn.rows.of_micro_batch(count, micro, 2)
        with rows:
            parts = gathered(layer(torch.ones(count, *SHAPE[1:])))
        for rank, part in enumerate(parts):
            first = rows.value.start - RANK + rank
            whole[first : first + count * WORLD : WORLD] = part
    return whole


def of_dtensor(layer, mesh, layout, shape=SHAPE):
    x = distribute_tensor(torch.ones(shape), mesh, layout, src_data_rank=None).requires_grad_()
    out = layer(x)
    assert tuple(out.placements) == tuple(layout) and out.shape == x.shape
    out.sum().backward()
    assert torch.equal(x.grad.full_tensor(), out.full_tensor()), "the gradient repeats the mask"
    return out.detach().full_tensor()


def of_local_heads(layer, mesh):
    """Local tensors of which each rank has some of dimension 1."""
    fastseed.nn.shard_inputs(layer, mesh, [Shard(1)])
    out = layer(torch.ones(SHAPE[0], SHAPE[1] // WORLD, SHAPE[2]))
    layer.cut = None
    return torch.cat(gathered(out), 1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(SHAPE[-1], SHAPE[-1]), nn.Dropout(0.3)

    def forward(self, x):
        return nn.functional.dropout(self.drop(self.linear(x)), 0.2, self.training)


def sharded_model(convert_first):
    """Zeros of a converted model under FSDP2, each rank with its rows; those of one process."""
    torch.manual_seed(0)
    whole = nn.Sequential(Block(), Block())
    model = copy.deepcopy(whole)
    steps = [fastseed.nn.convert, fully_shard]
    for step in steps if convert_first else reversed(steps):
        step(model)
    x = torch.randn(SHAPE)
    expected = alone(fastseed.nn.convert(whole), x)
    fastseed.derivation.context.seeder._set_scope(1, 0, 3)
    with fastseed.nn.rows.of_micro_batch(SHAPE[0] // WORLD):
        part = model(x[RANK::WORLD].contiguous())
    assert torch.allclose(part, expected[RANK::WORLD], atol=1e-6)
    part.sum().backward()
    return part == 0, expected[RANK::WORLD] == 0


def attempt(case, run, expected):
    fastseed.derivation.context.seeder._set_scope(1, 0, 3)
    try:
        found[case] = bool(torch.equal(run(), expected))
    except Exception:
        found[case] = traceback.format_exc()[-1500:]


def layouts(mesh):
    if mesh.ndim == 1:
        return [[Replicate()], [Shard(0)], [Shard(1)], [Shard(2)]]
    return [
        *([Replicate(), Shard(1)], [Shard(0), Shard(2)], [Shard(1), Shard(1)]),
        [_StridedShard(0, split_factor=mesh.size(1)), Shard(0)],
    ]


def refusal(mesh, layer):
    fastseed.derivation.context.seeder._set_scope(1, 0, 3)
    try:
        layer(DTensor.from_local(torch.zeros(SHAPE), mesh, [Partial()]))
    except ValueError as error:
        return str(error)
    return "no error"


def main():
    dist.init_process_group("gloo")
    line = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("dp",))
    fastseed.init(42)
    layer = fastseed.nn.Dropout(0.3, name="block")
    expected = alone(layer)
    fastseed.derivation.context.seeder._set_scope(1, 0, 3)
    attempt("rows", lambda: data_parallel(layer), expected)
    meshes = [line, *([init_device_mesh("cpu", (2, 2))] if WORLD == 4 else [])]
    for mesh in meshes:
        for layout in layouts(mesh):
            attempt(
                f"{mesh.ndim}-D {layout}",
                lambda m=mesh, p=layout: of_dtensor(layer, m, p),
                expected,
            )
    fastseed.derivation.context.seeder._set_scope(1, 0, 3)
    with fastseed.nn.rows(0, 7):
        uneven = layer(torch.ones(7, 5))
    attempt("uneven", lambda: of_dtensor(layer, line, [Shard(0)], (7, 5)), uneven)
    for first in (True, False):
        zeros, those_alone = sharded_model(first)
        attempt(f"FSDP2, convert first: {first}", lambda z=zeros: z, those_alone)
    fastseed.init(42, mesh={"tp": (RANK, WORLD)})
    attempt("local heads", lambda: of_local_heads(layer, line), expected)
    found["partial"] = refusal(line, layer)
    torch.manual_seed(1)
    own = nn.Dropout(0.3)
    whole = own(torch.ones(SHAPE))
    torch.manual_seed(1)
    parts = gathered(own(torch.ones(SHAPE[0] // WORLD, *SHAPE[1:])))
    found["torch"] = bool(torch.equal(torch.cat(parts), whole))
    print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # threads of gloo may abort an interpreter that ends in good order


main()
