"""What fastseed uses of torch's private names, one small function for each.

An upgrade of torch that renames one of them is a change of this file alone.
"""

from __future__ import annotations

from typing import Any

import torch


def has_kernel(operator: str, dispatch_key: str) -> bool:
    """Return whether an operator has a kernel: no public query covers the stable ABI's ones."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, dispatch_key))


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Return whether a transform of ``torch.func`` wraps a tensor, whose memory cannot be read."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def is_batched(tensor: torch.Tensor) -> bool:
    """Return whether ``torch.vmap`` maps over a tensor, whose strides are those of one example."""
    return bool(torch._C._functorch.is_batchedtensor(tensor))


def in_backward() -> bool:
    """Return whether this thread runs a backward pass: no public query says so."""
    return bool(torch._C._current_graph_task_id() != -1)


def default_store() -> Any:
    """Return the store of the default process group: torch has no public way to it."""
    return torch.distributed.distributed_c10d._get_default_store()
