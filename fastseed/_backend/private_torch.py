"""What fastseed uses of torch's private names, one small function for each.

An upgrade of torch that renames one of them is a change of this file alone.
"""

from __future__ import annotations

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
