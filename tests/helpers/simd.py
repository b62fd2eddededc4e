"""Choosing the instruction set of the native kernels."""

import torch

from fastseed._backend import derive


def set_simd(name: str | None) -> None:
    """Use one of ``derive.simd_paths()``; None goes back to the fastest."""
    if derive.simd() is not None:
        torch.ops.fastseed.choose_simd_path(name or "")
