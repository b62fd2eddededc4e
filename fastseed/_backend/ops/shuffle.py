"""The operators of orders: ``torch.ops.fastseed.shuffle`` and ``shuffle_positions``."""
# Annotations are read at run time: no `from __future__ import annotations` here.

from torch import Tensor

from ..reference import shuffle as reference
from .register import operator

_LOW64 = 2**64 - 1


@operator("out")
def shuffle(out: Tensor, lo: int, hi: int, n: int, start: int, stride: int) -> None:
    """Write the numbers at positions start, start + stride, ... of the order of [0, n)."""
    key = lo & _LOW64 | (hi & _LOW64) << 64
    out.numpy()[:] = reference.indices(key, n, start, stride, len(out))


@operator("out")
def shuffle_positions(out: Tensor, samples: Tensor, lo: int, hi: int, n: int) -> None:
    """Write the position of each sample in the order of [0, n); -1 of one outside of it."""
    key = lo & _LOW64 | (hi & _LOW64) << 64
    out.numpy()[:] = reference.positions(key, n, samples.numpy())
