"""The operator of exact sums, ``torch.ops.fastseed.exact_sum``.

``fastseed._backend.reference.exact_sum`` defines an accumulator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..reference import exact_sum as reference
from .register import define, fake, writing

SIZE = reference.SIZE


def _in_numpy(total: Tensor, values: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Add all elements of all values, or with factors their products, and carry.

    Before and after it the limbs of ``total`` but the last are in [0, 2**32): accumulators of
    2**30 ranks can be added as integers before the next call carries.
    """
    sums = total.numpy()
    for i, tensor in enumerate(values):
        other = factors[i] if factors else None
        reference.add(sums, _flat(tensor), None if other is None else _flat(other))
    reference.normalize(sums)


def _flat(tensor: Tensor) -> reference.F64:
    array: reference.F64 = tensor.to(torch.float64).reshape(-1).numpy()
    return array


def _fake(total: Tensor, values: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    fake(total, *values, *factors)


exact_sum = define(
    "exact_sum",
    "(Tensor(a0!) total, Tensor[] values, Tensor[] factors) -> ()",
    writing(1, _in_numpy),
    _fake,
)
