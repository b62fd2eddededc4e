"""Checks of the arguments of ``SlotGradients``, and what all ranks must have in common."""

from __future__ import annotations

import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn

from .._utils import StateDict, validation
from ..data.layout import ASSIGNMENTS
from ..derivation import context
from ..distributed.discovery import discover_rank
from ..random.layout import is_dtensor
from .collector import SlotPlan
from .peers import FUNCTION, Peers, check_group

_MOST_SLOTS = 2**24
_SETTINGS = ("training", "p", "dropout", "eps", "momentum")


def find_group(group: object) -> dist.ProcessGroup | None:
    """Return the ranks that divide the data; None in a job of one process."""
    if group is not None:
        return check_group(FUNCTION, group)
    if not (dist.is_available() and dist.is_initialized()):
        if discover_rank().world_size > 1:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: call torch.distributed.init_process_group first: there are "
                f"{discover_rank().world_size} ranks, and no process group to add gradients in"
            )
        return None
    seeder = context.seeder
    if seeder is not None and seeder.data_world_size != dist.get_world_size():
        rule = f"the process group of the {seeder.data_world_size} ranks that divide the data"
        raise validation.value_error(FUNCTION, "group", rule, None)
    return dist.group.WORLD


def make_plan(
    slots: object, group: dist.ProcessGroup | None, assignment: object, *, is_sharded: bool
) -> SlotPlan:
    """Return which rank has which slots."""
    count = validation.check_int(FUNCTION, "slots", slots, 1, _MOST_SLOTS)
    if assignment is None:
        assignment = "deal" if is_sharded else "blocks"
    chosen = validation.check_choice(FUNCTION, "assignment", assignment, ASSIGNMENTS)
    if is_sharded and chosen != "deal":
        rule = "'deal' or None under fully_shard, whose micro-steps end in a reduce-scatter each"
        raise validation.value_error(FUNCTION, "assignment", rule, chosen)
    if group is None:
        return SlotPlan(count, assignment=chosen)
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    return SlotPlan(count, rank, ranks, group, Peers(group), chosen)


def check_model(model: object) -> nn.Module:
    """Return the model if it is neither wrapped nor communicates in the forward pass."""
    module = validation.check_instance(FUNCTION, "model", model, nn.Module, "a torch.nn.Module")
    for name, part in module.named_modules():
        kind = type(part).__name__
        if kind in ("DistributedDataParallel", "FullyShardedDataParallel"):
            rule = f"without {kind}, which adds gradients in its own order (here: {name!r})"
            raise validation.type_error(FUNCTION, "model", rule, part)
        if isinstance(part, nn.SyncBatchNorm):
            rule = f"without SyncBatchNorm, which depends on the ranks: BatchNorm (here: {name!r})"
            raise validation.value_error(FUNCTION, "model", rule, kind)
    if any(nn.parameter.is_lazy(p) for p in module.parameters()):
        rule = "without uninitialized parameters: run the lazy module once"
        raise validation.value_error(FUNCTION, "model", rule, module)
    return module


def describe_machine(device: torch.device) -> StateDict:
    """Return what decides about the kernels that run, and so about the bits of a slot."""
    found: StateDict = {"torch": torch.__version__, "device": device.type}
    if device.type == "cpu":
        found["threads"] = torch.get_num_threads()
        found["MKL_CBWR"] = os.environ.get("MKL_CBWR", "unset")
        found["instructions of the processor"] = torch.backends.cpu.get_cpu_capability()
    elif device.type == "cuda":
        found["GPU"] = torch.cuda.get_device_name(device)
    return found


def describe_model(model: nn.Module, *, shards: bool = False) -> list[list[str]]:
    """Return (name, layout and digest) of each parameter and buffer, and settings of modules.

    Digests are those of whole tensors or, with ``shards``, of this rank's parts of the others.
    """
    rows = []
    for kind, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in named:
            text = f"{str(tensor.dtype)[6:]} {tuple(tensor.shape)}"
            if kind == "parameter" and not tensor.requires_grad:
                text += " frozen"
            if is_dtensor(tensor):
                text += f" {tensor.placements}"
                text += f" {_digest(tensor.to_local())}" if shards else ""
            elif not shards:
                text += f" {_digest(tensor)}"
            rows.append([f"{kind} {name!r}", text])
    for name, part in model.named_modules():
        given = {key: getattr(part, key, None) for key in _SETTINGS}
        plain = [f"{k}={v}" for k, v in given.items() if isinstance(v, (bool, int, float))]
        rows.append([f"module {name!r}", ", ".join(plain)])
    return rows


def _digest(tensor: torch.Tensor) -> str:
    """Return the first digits of SHA-256 of the values; none of a subclass without memory."""
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.is_meta:
        return type(tensor).__name__
    flat = tensor.detach().reshape(-1).view(torch.uint8).cpu()
    return hashlib.sha256(flat.numpy().data).hexdigest()[:16]
