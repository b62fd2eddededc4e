"""The operator of perturbations, ``torch.ops.fastseed.perturb``: noise added, recorded, undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ..reference import draws
from ..tensors import INTEGER_OF_SIZE
from .draws import runs_of
from .register import define

ADD, EACH, RECORD, UNDO = range(4)
"""Store the sum of all entries once; after each; with what undoes one; undo it."""

LISTED, UNMOVED = -128, -127
"""Bytes of numbers that are in the list, and of those that stayed as the list was full."""


def pattern(tensor: Tensor) -> Tensor:
    """Return the bits of contiguous numbers as signed integers, flat."""
    return tensor.view(-1).view(INTEGER_OF_SIZE[tensor.element_size()])


def _noise(
    key: Tensor, layout: Sequence[int], count: int, real: torch.dtype, rademacher: bool
) -> Tensor:
    """Return the noise of the elements of a layout (offset, dimensions, sizes, strides)."""
    offset, dims, *rest = layout
    keys, zero = key.numpy()[None], np.zeros(1, np.uint64)
    length, starts = runs_of(rest[:dims], rest[dims:]) if dims else (count, [0])
    found = []
    for start in starts:
        first = offset + start
        if rademacher:
            words = -(-(first % 32 + length) // 32)
            drawn = draws.bits(keys, zero, first // 32, words, 1)
            bits = np.unpackbits(drawn.view(np.uint8), bitorder="little")
            values = 1.0 - 2.0 * bits[first % 32 :][:length]
        else:
            kind = str(real).removeprefix("torch.")
            values = draws.normal(keys, zero, first, length, kind, 0.0, 1.0)[0]
        found.append(torch.from_numpy(values).to(real))
    return torch.cat(found)


def _moved(p: Tensor, d: Tensor) -> Tensor:
    """Return p + d in the dtype of p; p where that is not a number."""
    total = p.to(d.dtype) + d
    return torch.where(total.isnan(), p, total.to(p.dtype))


def _order(p: Tensor) -> Tensor:
    """Return integers that count through the numbers of a dtype in their order."""
    bits = pattern(p)
    return bits ^ (bits >> 63 & torch.iinfo(bits.dtype).max)


def _record(p: Tensor, moved: Tensor, d: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers to store and their bytes."""
    step = _order(p) - _order(_moved(moved, -d))
    far = (step < -126) | (step > 127)
    at = far.nonzero().flatten()
    rows = at[: len(places) - 1]
    places[0, 0] += len(at)
    bits = pattern(p)[rows].long() & (-1 if p.itemsize == 8 else 2 ** (8 * p.itemsize) - 1)
    places[1 : 1 + len(rows)] = torch.stack((rows, bits), 1)
    stays = at[len(rows) :]
    step[at], step[stays] = LISTED, UNMOVED
    moved[stays] = p[stays]
    return moved, step.to(torch.int8)


def _undone(p: Tensor, d: Tensor, steps: Tensor) -> Tensor:
    order = _order(_moved(p, -d)) + steps.to(INTEGER_OF_SIZE[p.element_size()])
    before = (order ^ (order >> 63 & torch.iinfo(order.dtype).max)).view(p.dtype)
    return torch.where(steps == UNMOVED, p, before)


def _layouts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    while numbers:
        end = 2 + 2 * numbers[1]
        yield numbers[:end]
        numbers = numbers[end:]


def _in_numpy(
    tensors: Sequence[Tensor], steps: Sequence[Tensor], lists: Sequence[Tensor], keys: Tensor,
    scales: Tensor, layouts: Sequence[int], rademacher: bool, mode: int,
) -> None:  # fmt: skip
    """Do what the mode says to each tensor, with a key for each tensor and entry."""
    for i, layout in enumerate(_layouts(layouts)):
        p = tensors[i].view(-1)
        real = torch.float64 if p.dtype == torch.float64 else torch.float32
        total = p.to(real) if mode == ADD else p.clone()
        for scale, key in zip(scales.to(real), keys[i * len(scales) :], strict=False):
            if not len(p):
                continue
            d = scale * _noise(key, layout, len(p), real, rademacher)
            if mode == UNDO:
                total = _undone(p, d, steps[i].view(-1))
            elif mode == RECORD:
                total, steps[i].view(-1)[:] = _record(p, _moved(p, d), d, lists[i])
            else:
                total = _moved(total, d)
        p[:] = torch.where(total.isnan(), p, total.to(p.dtype)) if mode == ADD else total


perturb = define(
    "perturb(Tensor(a0!)[] tensors, Tensor(a1!)[] bytes, Tensor(a2!)[] lists, Tensor keys,"
    " Tensor scales, int[] layouts, bool rademacher, int action) -> ()",
    _in_numpy,
)
