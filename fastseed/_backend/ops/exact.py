"""The operator of exact sums, ``torch.ops.fastseed.exact_sum``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..reference import exact_sum as reference
from .register import define

SIZE = reference.SIZE


def _in_numpy(total: Tensor, values: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Add all elements of all values, or with factors their products, and carry."""
    sums = total.numpy()
    for i, tensor in enumerate(values):
        other = factors[i] if factors else torch.ones_like(tensor)
        flat = (t.to(torch.float64).reshape(-1).numpy() for t in (tensor, other))
        reference.add(sums, *flat)
    reference.normalize(sums)


exact_sum = define(
    "exact_sum(Tensor(a0!) total, Tensor[] values, Tensor[] factors) -> ()", _in_numpy
)
