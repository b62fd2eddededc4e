"""What fastseed uses of torch's private names, one small function for each.

An upgrade of torch that renames one of them is a change of this file alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import torch.distributed as dist


def gradient_hooks(tensor: torch.Tensor) -> set[int]:
    """Return the ids of hooks on a parameter's gradient: torch has no public list of them."""
    tables = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None))
    return {key for table in tables for key in table or ()}


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written in place: autograd's own count."""
    return int(tensor._version)


def buffers_of(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the buffers of a module to read and replace, those that are None too."""
    return module._buffers


def multiply_(tensors: Sequence[torch.Tensor], factor: float) -> None:
    """Multiply tensors of one dtype and device in place, with one kernel for many of them."""
    torch._foreach_mul_(list(tensors), factor)


def device_types(group: dist.ProcessGroup | None) -> list[str]:
    """Return the kinds of devices whose tensors a group takes, the preferred first; None is all."""
    import torch.distributed as dist

    return [device.type for device in (group or dist.group.WORLD)._device_types]  # type: ignore[union-attr]


def default_store() -> Any:
    """Return the store of ``init_process_group``, which has no public getter."""
    import torch.distributed as dist

    return dist.distributed_c10d._get_default_store()


_FSDP_SETTINGS = (
    *("_reduce_scatter_comm", "_all_gather_comm", "gradient_divide_factor", "reduce_grads"),
    *("all_reduce_grads", "force_sum_reduction_for_comms", "reduce_scatter_unused_params"),
)


def save_fsdp_settings(module: Any) -> Callable[[], None]:
    """Return a function that restores how ``fully_shard`` reduces gradients: there are no getters.

    It also forgets a partial sum over replicas, which has none of the gradients.
    """
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
