"""Checks of the arguments of ``SlotGradients``, and what all ranks must have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

from .._utils import StateDict, validation
from ..data.layout import ASSIGNMENTS
from ..derivation import context
from ..digest.tensors import is_in_memory
from ..digest.trees import table_of
from ..distributed.agreement import check_group
from ..distributed.discovery import discover_rank
from ..distributed.rendezvous import name_ranks
from ..random.layout import is_dtensor
from .collector import SlotPlan
from .peers import FUNCTION, Peers

_MOST_SLOTS = 2**24


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
    if any(nn.parameter.is_lazy(p) or p.is_inference() for p in module.parameters()):
        rule = "without lazy modules that have not run, and made outside of torch.inference_mode()"
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


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for kind, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        yield from ((f"{kind} {name!r}", tensor) for name, tensor in named)


def describe_model(model: nn.Module) -> list[list[str]]:
    """Return (name, layout) of each parameter and buffer, and settings of modules."""
    rows = []
    for name, tensor in _tensors(model):
        text = f"{type(tensor).__name__} {str(tensor.dtype)[6:]} {tuple(tensor.shape)}"
        if name.startswith("parameter") and not tensor.requires_grad:
            text += " frozen"
        text += f" {tensor.placements}" if is_dtensor(tensor) else ""
        rows.append([name, text])
    for name, part in model.named_modules():
        text = f"{type(part).__name__}({part.extra_repr()}), training={part.training}"
        if isinstance(part, nn.MultiheadAttention):  # which shows nothing
            text += f", dropout={part.dropout}"
        rows.append([f"module {name!r}", text])
    return rows


def describe_values(model: nn.Module, *, shards: bool = False) -> list[list[str]]:
    """Return (name, first digits of the digest) of whole tensors, or of this rank's ``shards``."""
    held = {name: t.detach() for name, t in _tensors(model) if is_dtensor(t) == shards}
    parts = {name: t.to_local() if is_dtensor(t) else t for name, t in held.items()}
    table = table_of((name, t) for name, t in parts.items() if is_in_memory(t))
    return [[name, leaf.hex[:16]] for name, leaf in table.items()]


def check_ranks(rows: list[list[int]], rank: int) -> None:
    """RuntimeError on every rank if collectives of other steps, or other modules, were mixed.

    A row is the number of steps that a rank began, of those that left a mean, and its order.
    """
    if any(row[:2] != rows[0][:2] for row in rows):
        least = min(began - means for began, means, _ in rows)
        others = [other for other, row in enumerate(rows) if row[0] - row[1] > least]
        raise RuntimeError(
            f"fastseed.{FUNCTION}.step: all ranks must be in one step, but "
            f"{name_ranks(others or [*range(len(rows))])} of the group left an earlier one and "
            "went on: this step is a mix of two; end the job"
        )
    others = [other for other, row in enumerate(rows) if row[2] != rows[rank][2]]
    if others:
        raise RuntimeError(
            f"fastseed.{FUNCTION}.step: all ranks must run the same modules under fully_shard "
            f"in each micro-step, in one order, but {name_ranks(others)} did not as rank "
            f"{rank} of the group: torch then mixes up what they exchange; a module "
            "that only some slots run must be under the fully_shard of the module that calls "
            "it, without one of its own"
        )
