"""One rank of a job of two or four: digests of what is spread over ranks, and agreement.

``digest_ranks.py FOLDER`` writes what was found to ``FOLDER/<rank>.json``.
"""

import json
import logging
import os
import sys
import traceback
import warnings
from datetime import timedelta
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

from fastseed.debug.tree_digest import assert_ranks_agree, digest

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# The last dimension in bytes: groups that stay whole, groups that are cut, rows of part of one.
SHAPES = [(13, 6), (3, 2), (8, 64), (5, 3, 22), (11,), (1,), (37, 1), (2, 7, 9)]
DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.float64]
found = {}

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


def meshes():
    return [(2,), (1, 2)] if WORLD == 2 else [(4,), (2, 2)]


def placements(mesh, shape):
    """Ways to lay a tensor of this shape out, even and uneven, with empty shards."""
    dims = len(shape)
    first, last = Shard(0), Shard(dims - 1)
    if mesh.ndim == 1:
        return [[Replicate()], [first], [last]]
    layouts = [
        [Replicate(), first],
        [last, Replicate()],
        [first, first],
        [last, last],
        [last, first],
    ]
    for cut in {0, dims - 1}:
        if shape[cut] % mesh.size() == 0:  # torch itself refuses to cut some others
            layouts.append([_StridedShard(cut, split_factor=mesh.size(1)), Shard(cut)])
    return layouts


def whole_of(shape, dtype):
    generator = torch.Generator().manual_seed(len(shape) + shape[0])
    return (torch.randn(shape, generator=generator) * 60).to(dtype)


def check_layouts(mesh):
    """All layouts of all shapes and dtypes in one tree: (cases, those that are wrong)."""
    spread, whole = {}, {}
    for dtype in DTYPES:
        for shape in SHAPES:
            for i, layout in enumerate(placements(mesh, shape)):
                name = f"{shape} {dtype} {i} {layout}"
                whole[name] = whole_of(shape, dtype)
                spread[name] = distribute_tensor(whole[name], mesh, layout)
    one, other = digest(spread), digest(whole)
    wrong = [name for name in whole if one.table[name] != other.table[name]]
    return [len(whole), wrong, one.hex == other.hex]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(12, 22)
        self.norm = nn.LayerNorm(22)
        self.down = nn.Linear(22, 12)
        self.register_buffer("seen", torch.arange(3.0))

    def forward(self, x):
        return self.down(torch.relu(self.norm(self.up(x))))


def tensor_parallel(model, mesh):
    parallelize_module(model, mesh, {"up": ColwiseParallel(use_local_output=True)})
    parallelize_module(model, mesh, {"down": RowwiseParallel()})


def both(model):
    mesh = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    for part, plan in (("up", ColwiseParallel()), ("down", RowwiseParallel())):
        parallelize_module(model, mesh["tp"], {part: plan})
    fully_shard(model, mesh=mesh["dp"])
    if WORLD == 4:
        assert isinstance(model.up.weight.placements[0], _StridedShard)


def hybrid(model):
    names = ("replicate", "shard")
    fully_shard(model, mesh=init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=names))


def full(tree):
    """The same state with whole tensors in place of shards."""
    if isinstance(tree, DTensor):
        return tree.full_tensor()
    if isinstance(tree, dict):
        return {key: full(value) for key, value in tree.items()}
    return [full(value) for value in tree] if isinstance(tree, (list, tuple)) else tree


def check_model(parallelise, train):
    """Digests of a parallel module, its gradients and its optimizer, and of them gathered."""
    torch.manual_seed(5)
    alone = Block()
    model = Block()
    model.load_state_dict(alone.state_dict())
    parallelise(model)
    assert any(isinstance(p, DTensor) for p in model.parameters())
    same = [digest(model).value == digest(alone).value]
    if train:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for step in range(2):
            optimizer.zero_grad()
            x = torch.randn(4, 12, generator=torch.Generator().manual_seed(10 * step + RANK))
            model(x).square().mean().backward()
            optimizer.step()
        state = optimizer.state_dict()
        assert any(isinstance(v, DTensor) for s in state["state"].values() for v in s.values())
        gradients = {name: p.grad for name, p in model.named_parameters()}
        same += [digest(x).value == digest(full(x)).value for x in (gradients, state)]
        same += [digest(optimizer).value == digest(state).value]
        same += [digest(model).value != digest(alone).value]
    return same


def of_sums(mesh):
    """A DTensor that is a sum of what the ranks hold."""
    tensor = DTensor.from_local(torch.full((3,), RANK + 1.0), mesh, [Partial()])
    return digest(tensor).value == digest(torch.full((3,), WORLD * (WORLD + 1) / 2)).value


def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def other_names(mesh):
    """Ranks that hold DTensors of different names, or another number of them."""
    tensor = distribute_tensor(torch.zeros(8), mesh, [Shard(0)])
    last = RANK == WORLD - 1
    return [
        error_of(lambda: digest({"b" if last else "a": tensor})),
        error_of(lambda: digest({"a": tensor, **({"b": tensor} if last else {})})),
    ]


def agreements(mesh):
    model = Block()
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    replica = nn.parallel.DistributedDataParallel(model)
    last = RANK == WORLD - 1
    cases = {"same": error_of(lambda: assert_ranks_agree(replica))}
    with torch.no_grad():
        if last:
            model.down.bias[3] = -0.0
            model.up.weight.view(torch.int32)[2, 1] += 1
        cases["differ"] = error_of(lambda: assert_ranks_agree(replica))
    names = {"a": torch.ones(2), **({"b": 1, "c": 2} if last else {"d": 3})}
    cases["names"] = error_of(lambda: assert_ranks_agree(names))
    cases["lengths"] = error_of(lambda: assert_ranks_agree({str(i): i for i in range(9 + RANK)}))
    bad = object() if last else torch.ones(1)
    cases["undigested"] = error_of(lambda: assert_ranks_agree({"x": bad}))
    first = object() if RANK == 0 else torch.ones(1)
    cases["first undigested"] = error_of(lambda: assert_ranks_agree({"x": first}))
    cases["none can"] = error_of(lambda: assert_ranks_agree(object()))
    value = torch.full((2,), float(RANK > 1))
    cases["all"] = error_of(lambda: assert_ranks_agree(value))
    spread = distribute_tensor(torch.arange(9.0), mesh, [Shard(0)])
    cases["sharded"] = error_of(lambda: assert_ranks_agree({"w": spread}))
    if WORLD == 4:
        grid = init_device_mesh("cpu", (2, 2))
        local = torch.ones(3) * (1 + (RANK >= 2))
        replicas = DTensor.from_local(local, grid, [Replicate(), Shard(0)], run_check=False)
        cases["replicas"] = error_of(lambda: assert_ranks_agree({"w": replicas}))
    return cases


def attempt(case, check):
    try:
        found[case] = check()
    except Exception:
        found[case] = traceback.format_exc()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    before = torch.get_rng_state()
    for shape in meshes():
        attempt(
            f"layouts {shape}", lambda shape=shape: check_layouts(init_device_mesh("cpu", shape))
        )
    assert torch.equal(before, torch.get_rng_state())
    line = init_device_mesh("cpu", (WORLD,))
    attempt("FSDP2", lambda: check_model(lambda model: fully_shard(model, mesh=line), True))
    attempt("TP", lambda: check_model(lambda model: tensor_parallel(model, line), False))
    attempt("FSDP2 over TP", lambda: check_model(both, False))
    attempt("HSDP", lambda: check_model(hybrid, True))
    attempt("sums", lambda: of_sums(line))
    attempt("other names", lambda: other_names(line))
    attempt("agreements", lambda: agreements(line))
    Path(sys.argv[1], f"{RANK}.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)  # threads of gloo may abort an interpreter that ends in good order


main()
