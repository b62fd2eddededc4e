"""The operators of random numbers: ``torch.ops.fastseed.draw_uniform`` and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..reference import draws
from .register import define, direct

REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The dtypes of real numbers that operators compute with."""


def runs_of(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, list[int]]:
    """Return (length, first value of each) of runs of consecutive values, row by row."""
    starts, length = np.zeros(1, np.int64), 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if len(starts) == 1 and stride == length:
            length *= size  # consecutive with the dimensions behind it
        else:
            steps = np.arange(size, dtype=np.int64) * stride
            starts = (steps[:, None] + starts).reshape(-1)
    return length, starts.tolist()


_OF_DTYPE: dict[str, Callable[[torch.dtype], tuple[object, ...]]] = {
    "kind": lambda dtype: (str(dtype).removeprefix("torch."),),
    "words": lambda dtype: (2 if dtype == torch.uint64 else 1,),
    "": lambda _: (),
}
"""The arguments of references that the dtype of the output gives."""


def _define(name: str, first: str, parameters: str) -> Any:
    """Define the operator of a reference, whose ``first`` argument is one of ``_OF_DTYPE``."""
    values, of_dtype = getattr(draws, name), _OF_DTYPE[first]

    def draw(
        out: Tensor, keys: Tensor, positions: Tensor | None,
        sizes: Sequence[int], strides: Sequence[int], offset: int, *parameters: object,
    ) -> None:  # fmt: skip
        if out.numel() == 0:
            return
        n = len(keys)
        rows = out.view(n, -1)
        if not sizes:
            sizes, strides = [rows.size(1)], [1]
        at = np.zeros(n, np.int64) if positions is None else positions.numpy()
        streams = (keys.numpy(), at.view(np.uint64))
        length, starts = runs_of(sizes, strides)
        for run, start in enumerate(starts):
            found = values(*streams, offset + start, length, *of_dtype(out.dtype), *parameters)
            rows[:, run * length : (run + 1) * length] = torch.from_numpy(found)

    schema = (
        f"draw_{name}(Tensor(a0!) out, Tensor keys, Tensor? positions, int[] sizes, int[] strides,"
        f" int offset{parameters}) -> ()"
    )
    return define(schema, draw)


_INTERVAL = "float middle, float span, float below, float above, float low, float high"
DRAW = {
    name: _define(name, *row)
    for name, row in {
        "bits": ("words", ""),
        "uniform": ("kind", ", float span, float shift, float cap"),
        "normal": ("kind", ", float mean, float std"),
        "exponential": ("kind", ", float scale"),
        "trunc_normal": ("kind", f", float mean, float std, {_INTERVAL}"),
        "bernoulli": ("", ", int threshold"),
        "randint": ("", ", int low, int range"),
    }.items()
}
"""What calls ``draw_<name>``, by the name of the distribution."""
DIRECT_DRAW = {name: direct(f"draw_{name}") for name in DRAW}
"""``direct`` of each: of the halves of one key, of which the lower may be all of it."""
