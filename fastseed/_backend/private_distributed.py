"""What fastseed uses of private names of ``torch.distributed``, one small function for each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def local_tensor_of(tensor: torch.Tensor) -> object:
    """Return the tensor that a ``DTensor`` holds, without a gradient's way to it; or ``tensor``."""
    return getattr(tensor, "_local_tensor", tensor)


def finished(tensor: torch.Tensor) -> torch.Tensor:
    """Wait for the collective that a tensor is the result of, if it is one."""
    collectives = sys.modules.get("torch.distributed._functional_collectives")
    if collectives is not None and isinstance(tensor, collectives.AsyncCollectiveTensor):
        result: torch.Tensor = tensor.wait()
        return result
    return tensor


def shard_order_of(tensor: Any) -> Any:
    """Return in which order mesh dimensions cut a ``DTensor``; None before torch has orders."""
    return getattr(tensor._spec, "shard_order", None)


def sharded_dim(placement: Any) -> int | None:
    """Return the dimension that a placement cuts, also as FSDP2 does over tensor parallelism."""
    from torch.distributed.tensor import placement_types as types

    is_shard = isinstance(placement, (types.Shard, types._StridedShard))
    return int(placement.dim) if is_shard else None


def device_types(group: dist.ProcessGroup | None) -> list[str]:
    """Return the kinds of devices whose tensors a group takes, the preferred first; None is all."""
    return [device.type for device in (group or dist.group.WORLD)._device_types]  # type: ignore[union-attr]


def default_store() -> Any:
    """Return the store of ``init_process_group``, which has no public getter."""
    return dist.distributed_c10d._get_default_store()


_FSDP_SETTINGS = (
    *("_reduce_scatter_comm", "_all_gather_comm", "gradient_divide_factor", "reduce_grads"),
    *("all_reduce_grads", "force_sum_reduction_for_comms", "reduce_scatter_unused_params"),
)


def save_fsdp_settings(module: Any) -> Callable[[], None]:
    """Return a function that restores how ``fully_shard`` reduces gradients."""
    groups = list(module._get_fsdp_state()._fsdp_param_groups)
    saved = [{name: getattr(group, name) for name in _FSDP_SETTINGS} for group in groups]

    def restore() -> None:
        for group, settings in zip(groups, saved, strict=True):
            vars(group).update(settings, _partial_reduce_output=None)

    return restore


def gather_of(module: Any) -> Any:
    """Return how ``fully_shard`` gathers the parameters of a module; None if it manages none."""
    groups = module._get_fsdp_state()._fsdp_param_groups
    return groups[0]._all_gather_comm if groups else None
