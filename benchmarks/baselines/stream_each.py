"""A generator object for each stream, in a Python loop: what a bank replaces."""

from __future__ import annotations

import numpy as np
import torch

from ..case import Side
from ..laws import RANGE

NUMPY = {
    "uniform": "for g, row in pairs: g.random(dtype=real, out=row)",
    "normal": "for g, row in pairs: g.standard_normal(dtype=real, out=row)",
    "randint": f"for g, row in pairs: row[:] = g.integers(0, {RANGE}, size)",
}
TORCH = {
    "uniform": "for g, row in pairs: row.uniform_(generator=g)",
    "normal": "for g, row in pairs: row.normal_(generator=g)",
    "randint": f"for g, row in pairs: row.random_(0, {RANGE}, generator=g)",
}


def numpy_philox(kind: str, out: torch.Tensor) -> tuple[Side, ...]:
    """``numpy.random.Generator(Philox(key=i))`` fills row i of ``out``."""
    generators = [np.random.Generator(np.random.Philox(key=i)) for i in range(len(out))]
    pairs = list(zip(generators, out.numpy(), strict=True))
    names = {"pairs": pairs, "real": np.float32, "size": out.shape[1]}
    return (Side("loop of NumPy Philox", NUMPY[kind], names),)


def torch_generators(kind: str, out: torch.Tensor) -> tuple[Side, ...]:
    """A ``torch.Generator`` of its own fills row i of ``out``."""
    generators = [torch.Generator(out.device).manual_seed(i) for i in range(len(out))]
    pairs = list(zip(generators, out.unbind(), strict=True))
    return (Side("loop of torch's, generator=g", TORCH[kind], {"pairs": pairs}),)
