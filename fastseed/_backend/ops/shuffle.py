"""The operators of orders: ``torch.ops.fastseed.shuffle`` and ``shuffle_positions``."""

from __future__ import annotations

from torch import Tensor

from ..reference import shuffle as reference
from ..reference.scalar import signed
from .register import define, operator

_LOW64 = 2**64 - 1


@operator("(Tensor(a0!) out, int lo, int hi, int n, int start, int stride) -> ()")
def shuffle(out: Tensor, lo: int, hi: int, n: int, start: int, stride: int) -> None:
    """Write the numbers at positions start, start + stride, ... of the order of [0, n)."""
    key = lo & _LOW64 | (hi & _LOW64) << 64
    out.numpy()[:] = reference.indices(key, n, start, stride, len(out))


@operator("(Tensor(a0!) out, Tensor samples, int lo, int hi, int n) -> ()")
def shuffle_positions(out: Tensor, samples: Tensor, lo: int, hi: int, n: int) -> None:
    """Write the position of each sample in the order of [0, n); -1 of one outside of it."""
    key = lo & _LOW64 | (hi & _LOW64) << 64
    out.numpy()[:] = reference.positions(key, n, samples.numpy())


def _of_key(out: Tensor, key: Tensor) -> None:
    """Write the order of [0, n) for a key in memory, which compiled code cannot read."""
    lo, hi = key.view(-1).tolist()
    if len(out):
        shuffle(out, signed(lo), signed(hi), len(out), 0, 1)


shuffle_of_key = define(
    "shuffle_of_key(Tensor(a0!) out, Tensor key) -> ()", _of_key, is_native=False
)
