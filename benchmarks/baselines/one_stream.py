"""One generator for everything: less than a stream a row."""

from __future__ import annotations

import numpy as np
import torch

from ..case import Side
from ..laws import RANGE

NUMPY = {
    "uniform": "g.random(dtype=real, out=out)",
    "normal": "g.standard_normal(dtype=real, out=out)",
    "randint": f"for row in out: row[:] = g.integers(0, {RANGE}, row.shape)",  # there is no out=
}
TORCH = {"uniform": "torch.rand(n, out=out)", "normal": "torch.randn(n, out=out)"}


def numpy_philox(kind: str, out: torch.Tensor) -> tuple[Side, ...]:
    """``numpy.random.Generator(Philox)`` fills all of ``out``."""
    generator = np.random.Generator(np.random.Philox(1))
    names = {"g": generator, "real": np.float32, "out": out.numpy()}
    return (Side("NumPy Philox", NUMPY[kind], names),)


def torch_default(kind: str, out: torch.Tensor) -> tuple[Side, ...]:
    """Torch's default generator fills all of ``out`` (n,)."""
    return (Side("torch", TORCH[kind], {"torch": torch, "n": out.numel(), "out": out}),)
