"""Checks of random numbers: fastseed's bit for bit, a baseline's by bounds and moments.

Used by the cases of the CPU and of the GPU, before anything is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastseed._backend.reference import draws as reference

from .case import expect

U64 = npt.NDArray[np.uint64]
BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
ROWS, SLICE = 16, 4096  # how much of an output is compared with the reference
POISON = 0x7F  # bytes that an output is filled with before it is checked
SIGMAS = 6.0  # a fair draw exceeds it once in 5e8


@dataclass(frozen=True)
class Law:
    """A distribution: the reference's values (keys, positions, start, count), and its moments."""

    values: Callable[[U64, U64, int, int], npt.NDArray[Any]]
    low: float
    high: float  # the largest value that may occur
    mean: float
    std: float
    dtype: torch.dtype = torch.float32


UNIFORM = Law(
    lambda *where: reference.uniform(*where, "float32", 1.0, 0.0, BELOW_ONE),
    0.0, BELOW_ONE, 0.5, math.sqrt(1 / 12),
)  # fmt: skip
NORMAL = Law(lambda *where: reference.normal(*where, "float32", 0.0, 1.0), -9.0, 9.0, 0.0, 1.0)


def poison(out: torch.Tensor) -> None:
    """Fill with what no draw leaves behind, so that an element not written is seen."""
    out.view(torch.uint8).fill_(POISON)


def _numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    return tensor.cpu().numpy()


def expect_rows(law: Law, out: torch.Tensor, keys: torch.Tensor, positions: torch.Tensor) -> None:
    """That each row of ``out`` (n, L) is the draw of its key.

    Some rows bit for bit, all by their moments. ``positions`` (n,) are those before the draw.
    """
    n, length = out.shape
    some = torch.linspace(0, n - 1, min(n, ROWS)).long().to(out.device)
    # uint64 is not indexable on every device: as int64, the same bits
    chosen = _numpy(keys.view(torch.int64)[some]).view(np.uint64)
    starts = _numpy(positions[some]).astype(np.uint64)
    right = law.values(chosen, starts, 0, length)
    expect(np.array_equal(_numpy(out[some]), right), "the values of some rows")
    expect_plausible(law, out, "fastseed")


def expect_stream(law: Law, out: torch.Tensor, key: torch.Tensor) -> None:
    """That ``out`` (n,) is one stream from its beginning: the ends and the middle bit for bit."""
    n = out.numel()
    one = _numpy(key).reshape(1, 2)
    length = min(n, SLICE)
    for at in (0, (n - length) // 2, n - length):
        right = law.values(one, np.zeros(1, np.uint64), at, length)[0]
        expect(np.array_equal(_numpy(out[at : at + length]), right), f"the values from {at} on")
    expect_plausible(law, out, "fastseed")


def expect_plausible(law: Law, out: torch.Tensor, whose: str) -> None:
    """Bounds, mean and standard deviation of all of ``out``."""
    n = out.numel()
    low, high = float(out.min()), float(out.max())
    expect(law.low <= low and high <= law.high, f"{whose}: values in [{low:g}, {high:g}]")
    if n < 1000:
        return
    real = out.to(torch.float64) if n <= 1 << 22 else out.reshape(-1)[:: n >> 20].double()
    error = law.std / math.sqrt(real.numel())
    mean, std = float(real.mean()), float(real.std())
    expect(abs(mean - law.mean) <= SIGMAS * error, f"{whose}: a mean of {mean:g}")
    expect(abs(std - law.std) <= SIGMAS * error, f"{whose}: a standard deviation of {std:g}")


def expect_baseline(law: Law, made: Any, shape: tuple[int, ...], whose: str) -> None:
    """That a baseline's array (torch's, NumPy's or JAX's) is a draw of this law and shape."""
    expect(tuple(made.shape) == shape, f"{whose}: of shape {tuple(made.shape)}")
    tensor = made if isinstance(made, torch.Tensor) else torch.from_numpy(np.array(made))
    real = law.dtype.is_floating_point
    expect(tensor.dtype == law.dtype if real else not tensor.dtype.is_floating_point,
           f"{whose}: of dtype {tensor.dtype}")  # fmt: skip
    expect_plausible(law, tensor, whose)
