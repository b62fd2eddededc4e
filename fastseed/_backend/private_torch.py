"""What fastseed uses of torch's private names, each with its reason: an upgrade is one diff."""

from __future__ import annotations

import torch


def is_plain_eager() -> bool:
    """Return whether new tensors are ordinary ones: neither traced nor made by a dispatch mode.

    torch has no public function that says so.
    """
    return not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() == 0
