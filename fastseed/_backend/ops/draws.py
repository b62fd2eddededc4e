"""The operators of random numbers: ``torch.ops.fastseed.draw_uniform`` and others."""
# Annotations are read at run time: no `from __future__ import annotations` here.

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..reference import draws
from .register import define, writing

REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The dtypes of real numbers that operators compute with."""


def _runs(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, list[int]]:
    """Return (length, first value of each) of runs of consecutive values, row by row."""
    starts, length = np.zeros(1, np.int64), 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if len(starts) == 1 and stride == length:
            length *= size  # consecutive with the dimensions behind it
        else:
            steps = np.arange(size, dtype=np.int64) * stride
            starts = (steps[:, None] + starts).reshape(-1)
    return length, starts.tolist()


def _define(name: str, kind: str = "", parameter_names: Sequence[str] = ()) -> Any:
    """Define ``draw_<name>``, whose values ``fastseed._backend.reference.draws`` computes."""
    values = getattr(draws, name)

    def draw(
        out: Tensor, keys: Tensor, positions: Tensor | None,
        sizes: Sequence[int], strides: Sequence[int], offset: int, *parameters: object,
    ) -> None:  # fmt: skip
        if out.numel() == 0:
            return
        if name == "bits":
            parameters = (2 if out.dtype == torch.uint64 else 1,)
        elif name == "randint":
            parameters = (parameters[0], cast(int, parameters[1]) & 2**64 - 1)
        elif name != "bernoulli":
            parameters = (str(out.dtype).removeprefix("torch."), *parameters)
        n = len(keys)
        rows = out.view(n, -1)
        if not sizes:
            sizes, strides = [rows.size(1)], [1]
        at = np.zeros(n, np.int64) if positions is None else positions.numpy()
        streams = (keys.numpy(), at.view(np.uint64))
        length, starts = _runs(sizes, strides)
        for run, start in enumerate(starts):
            found = values(*streams, offset + start, length, *parameters)
            rows[:, run * length : (run + 1) * length] = torch.from_numpy(found)

    parameters = "".join(f", {kind} {parameter}" for parameter in parameter_names)
    schema = (
        "(Tensor(a0!) out, Tensor keys, Tensor? positions, int[] sizes, int[] strides, int offset"
        f"{parameters}) -> ()"
    )
    return define(f"draw_{name}", schema, writing(1, draw))


draw_bits = _define("bits")
draw_uniform = _define("uniform", "float", ("span", "shift", "cap"))
draw_normal = _define("normal", "float", ("mean", "std"))
draw_exponential = _define("exponential", "float", ("scale",))
draw_trunc_normal = _define(
    "trunc_normal",
    "float",
    ("mean", "std", "middle", "span", "below", "above", "low", "high"),
)
draw_bernoulli = _define("bernoulli", "int", ("threshold",))
draw_randint = _define("randint", "int", ("low", "range"))
