"""A case of a kernel: its inputs, its call, and what it is timed beside."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

for _module in ("digest", "draws", "dropout", "exact", "keys", "perturb", "sampling", "shuffle"):
    importlib.import_module(f"fastseed._backend.ops.{_module}")  # each defines its operators

OPS = torch.ops.fastseed
NAME_KEY = (0x0123456789ABCDEF, -0x123456789ABCDEF)
NAME = (0x670678FD, 0x5105C)
RANK_WORD, WORKER = 3 | 2 << 24, 0

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A call of an operator, ``call(*inputs(n))``, on the device that its inputs were moved to.

    What it writes is its return value and its inputs. ``against`` names what ``beside`` does with
    the same inputs.
    """

    name: str
    n: int
    """How many values to time it with."""
    traffic: float
    """Bytes that a value reads and writes."""
    inputs: Callable[[int], Inputs]
    call: Callable[..., Any]
    against: str = ""
    beside: Callable[..., Any] | None = None
    reads: bool = False
    """Whether its ceiling is a copy, else memset."""
    small: int = 100_003
    """How many values its bits are compared with."""
    sets: int | None = None
    """How many sets of inputs to rotate over; None: four times the L2."""
    captured: bool = True
    """Whether a CUDA graph may hold its first launch."""
    headline: bool = False
    """Whether the last table shows it."""
    share: float | None = None
    """The target: what share of the ceiling it has to reach."""
    ratio: float | None = None
    """The target: how many times as fast as ``beside`` it has to be."""


def keys(n: int) -> torch.Tensor:
    """Return n keys, (n, 2)."""
    out = torch.empty(n, 2, dtype=torch.uint64)
    OPS.derive_keys(out, *NAME_KEY, RANK_WORD, WORKER, 5)
    return out


def reals(n: int, dtype: torch.dtype, kind: str = "normal") -> torch.Tensor:
    """Return n numbers: normal, mostly zero from the first on, or over 12 decades."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, generator=generator)
    if kind == "sparse":  # as the gradient of an embedding
        x[: n // 20 * 19] = 0
    if kind == "wide":
        x *= 10.0 ** (-12 * torch.rand(n, generator=generator))
    return x.to(dtype)


def moved(value: Any, device: str) -> Any:
    """Return a copy of inputs on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device, copy=True)
    return [moved(v, device) for v in value] if isinstance(value, list) else value


def raw(value: Any) -> list[torch.Tensor]:
    """Return the bytes of all tensors."""
    if isinstance(value, (list, tuple)):
        return [found for v in value for found in raw(v)]
    if not isinstance(value, torch.Tensor):
        return []
    return [value.detach().cpu().contiguous().view(-1).view(torch.uint8)]


def differing(found: Any, expected: Any) -> str:
    """Return "equal", or how many bytes differ."""
    pairs = list(zip(raw(found), raw(expected), strict=True))
    wrong = sum(int((a != b).sum()) for a, b in pairs)
    return "equal" if wrong == 0 else f"{wrong} of {sum(len(a) for a, _ in pairs)} BYTES DIFFER"
