"""Checks of the arguments of ``SlotGradients``, on this rank and between ranks."""

from __future__ import annotations

import hashlib
import json

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from .._utils import StateDict, validation
from ..derivation import context
from ..distributed import agreement, rendezvous
from ..distributed.discovery import discover_rank
from .collector import SlotPlan

FUNCTION = "elastic.SlotGradients"
_MOST_SLOTS = 2**24


def find_group(group: object) -> dist.ProcessGroup | None:
    """Return the ranks that divide the data; None in a job of one process.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: there are several ranks, and no process group of them.
    """
    rule = "a process group, a mesh of one dimension or None"
    kinds = (dist.ProcessGroup, DeviceMesh, type(None))
    validation.check_instance(FUNCTION, "group", group, kinds, rule)
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise validation.value_error(FUNCTION, "group", rule, group)
        group = group.get_group()
    if isinstance(group, dist.ProcessGroup):
        return group
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


def make_plan(slots: object, group: dist.ProcessGroup | None) -> SlotPlan:
    """Return which rank has which slots; TypeError or ValueError for an invalid number of them."""
    count = validation.check_int(FUNCTION, "slots", slots, 1, _MOST_SLOTS)
    if group is None:
        return SlotPlan(count)
    return SlotPlan(count, dist.get_rank(group), dist.get_world_size(group), group)


def check_model(model: object) -> nn.Module:
    """Return the model if its gradients can be collected.

    Raises:
        TypeError: it is not a module, or wrapped by DistributedDataParallel or FSDP1.
        ValueError: a module of it communicates in the forward pass.
    """
    module = validation.check_instance(FUNCTION, "model", model, nn.Module, "a torch.nn.Module")
    for name, part in module.named_modules():
        where = f" (here: {name!r})" if name else ""
        kind = type(part).__name__
        if kind in ("DistributedDataParallel", "FullyShardedDataParallel"):
            rule = (
                f"the module itself, without {kind}, which adds gradients in its own order{where}"
            )
            raise validation.type_error(FUNCTION, "model", rule, part)
        if isinstance(part, nn.SyncBatchNorm):
            rule = (
                "without SyncBatchNorm, whose statistics depend on the number of ranks; use "
                f"BatchNorm, with the statistics of each slot{where}"
            )
            raise validation.value_error(FUNCTION, "model", rule, kind)
    return module


def describe_machine(device: torch.device) -> StateDict:
    """Return what decides about the kernels that run, and so about the bits of a slot."""
    found: StateDict = {"torch": torch.__version__, "device": device.type}
    if device.type == "cpu":
        found |= {
            "threads": torch.get_num_threads(),
            "instructions of the processor": torch.backends.cpu.get_cpu_capability(),
        }
    elif device.type == "cuda":
        found["GPU"] = torch.cuda.get_device_name(device)
    return found


def agree(group: dist.ProcessGroup | None, record: StateDict, problem: Exception | None) -> None:
    """Raise on every rank, naming the ranks, where records differ or a rank has a problem.

    Args:
        record: what all ranks must have in common; the long dict under "tensors" is compared by a
            digest first.
        problem: the error of this rank, which is raised here and reported to the others.
    """
    if group is not None and dist.get_world_size(group) > 1:
        tensors = record.get("tensors")
        own = {**record, "tensors": hashlib.sha256(json.dumps(tensors).encode()).hexdigest()}
        try:
            verdict = _meet(group, own if problem is None else {"problem": str(problem)})
            if "tensors" in verdict:
                verdict = _meet(group, tensors or {})
        except (TimeoutError, RuntimeError):
            if problem is not None:
                raise problem from None
            raise
        if problem is None and "error" in verdict:
            raise RuntimeError(verdict["error"])
    if problem is not None:
        raise problem


def _meet(group: dist.ProcessGroup, record: StateDict) -> StateDict:
    return rendezvous.exchange_records(FUNCTION, record, _judge, group=group)


def _judge(ranks: list[int], records: list[StateDict]) -> StateDict:
    """Return an empty verdict if the records agree; else the error for every rank."""
    rows = list(zip(ranks, records, strict=True))
    found = [
        f"{rendezvous.name_ranks([rank])} failed: {row['problem']}"
        for rank, row in rows
        if "problem" in row
    ] or agreement.compare(ranks, records)
    if not found:
        return {}
    if all(sentence.startswith("tensors is") for sentence in found):
        return {"tensors": "differ"}
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return {"error": f"fastseed.{FUNCTION}: all ranks must agree, but {'; '.join(found[:3])}{more}"}
