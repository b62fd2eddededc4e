"""One rank of a job: norms, clipping and means of one model on different layouts.

``clip_ranks.py`` prints, as one line of JSON, the bits that each layout gives.
"""

import hashlib
import json
import os
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
SHAPES = [(37, 5), (13,), (8, 16), (64, 33), (1,), (129, 8)]
MAX_NORM = 0.5

warnings.simplefilter("ignore")


def gradients(seed: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator) * 2.0 ** (i % 3) for i, shape in enumerate(SHAPES)
    ]


def parameters(place, seed) -> list[nn.Parameter]:
    """Parameters whose gradients are laid out by ``place(tensor)``."""
    found = []
    for gradient in gradients(seed):
        laid_out = place(gradient.clone())
        parameter = nn.Parameter(torch.zeros_like(laid_out))
        parameter.grad = laid_out
        found.append(parameter)
    return found


def digest(tensors) -> str:
    """Return a digest of whole tensors, wherever their parts are."""
    whole = [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in whole)).hexdigest()[:16]


def clipped(place, clip) -> list[str]:
    """The norms of some models, and a digest of all clipped gradients."""
    norms, found = [], []
    for seed in range(3, 9):
        given = parameters(place, seed)
        norm = clip(given, MAX_NORM)
        norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        found += [p.grad for p in given]
    return [*(norm.item().hex() for norm in norms), digest(found)]


def placements() -> dict:
    """Layouts by their names, as functions of a tensor."""
    line = init_device_mesh("cpu", (WORLD,))
    found = {
        "whole": lambda t: t,
        "replicated": lambda t: distribute_tensor(t, line, [Replicate()]),
        "rows": lambda t: distribute_tensor(t, line, [Shard(0)]),
        "columns": lambda t: distribute_tensor(t, line, [Shard(t.dim() - 1)]),
        "mixed": lambda t: t if t.dim() == 1 else distribute_tensor(t, line, [Shard(0)]),
    }
    if WORLD == 4:
        plane = init_device_mesh("cpu", (2, 2))

        def strided(t):
            cut = (
                [_StridedShard(0, split_factor=2), Shard(0)] if len(t) % 4 == 0 else [Shard(0)] * 2
            )
            return distribute_tensor(t, plane, cut)

        found["HSDP"] = lambda t: distribute_tensor(t, plane, [Replicate(), Shard(0)])
        found["two cuts"] = lambda t: distribute_tensor(t, plane, [Shard(0), Shard(t.dim() - 1)])
        found["strided"] = strided
    return found


def shards_without_dtensors() -> str:
    whole = torch.cat([g.reshape(-1) for g in gradients()])
    mine = whole.chunk(WORLD)[RANK]
    return fastseed.elastic.get_total_norm([mine], group=dist.group.WORLD).item().hex()


def fsdp() -> list[str]:
    """The norm and the gradients of a module under FSDP2."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 33), nn.Linear(33, 5))
    fully_shard(model)
    model(torch.ones(3, 7)).sum().backward()
    norm = fastseed.elastic.clip_grad_norm_(model.parameters(), 1e-3)
    return [norm.item().hex(), digest(p.grad for p in model.parameters())]


def means() -> list[str]:
    """Means of values that are dealt out unevenly: the last rank has none."""
    values, weights = gradients()[3].reshape(-1), torch.arange(64 * 33)
    cut = [(i * values.numel()) // (WORLD - 1) for i in range(WORLD)] + [values.numel()]
    mine = slice(cut[RANK], cut[RANK + 1])
    found = [
        fastseed.elastic.mean(values[mine]),
        fastseed.elastic.mean(values[mine].double(), weights=weights[mine]),
        fastseed.elastic.mean(values[mine].tolist(), weights=weights[mine].tolist()),
    ]
    return [x.item().hex() for x in found]


def refusals() -> list[str]:
    """Errors of one rank, or about another number of weights, which all ranks get."""
    partial = DTensor.from_local(torch.ones(2), init_device_mesh("cpu", (WORLD,)), [Partial()])
    first, world = RANK == 0, dist.group.WORLD
    said = []
    for call in (
        lambda: fastseed.elastic.get_total_norm([partial]),
        lambda: fastseed.elastic.mean([1.0], weights=[-1.0 if first else 1.0]),
        lambda: fastseed.elastic.mean([1.0], weights=[1.0] if first else None),
        lambda: fastseed.elastic.mean(["1" if first else 1.0]),
        lambda: fastseed.elastic.get_total_norm([torch.ones(2).long()] * first, group=world),
        lambda: fastseed.elastic.clip_grad_norm_([], -1.0 if first else 1.0, group=world),
    ):
        try:
            call()
            said.append("no error")
        except (TypeError, ValueError, RuntimeError) as error:
            said.append(str(error))
    return said


def main() -> None:
    dist.init_process_group("gloo")
    found = {"layouts": {}, "of torch": {}}
    for name, place in placements().items():
        found["layouts"][name] = clipped(place, fastseed.elastic.clip_grad_norm_)
        if name in ("whole", "rows", "columns"):
            found["of torch"][name] = clipped(place, nn.utils.clip_grad_norm_)
    found |= {"shards": shards_without_dtensors(), "FSDP2": fsdp(), "means": means()}
    found["refusals"] = refusals()
    dist.destroy_process_group()
    print(json.dumps(found))


main()
