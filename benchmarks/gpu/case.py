"""A kernel as a case: its inputs, its call, and what it is timed beside."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..case import Case, Contest, Side, expect

for _module in ("digest", "draws", "dropout", "exact", "keys", "perturb", "sampling", "shuffle"):
    importlib.import_module(f"fastseed._backend.ops.{_module}")  # each defines its operators

OPS = torch.ops.fastseed
NAME_KEY = (0x0123456789ABCDEF, -0x123456789ABCDEF)
NAME = (0x670678FD, 0x5105C)
RANK_WORD, WORKER = 3 | 2 << 24, 0
REHEARSED = 200_000  # values of a kernel on the CPU

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Kernel:
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
    """Whether the last screen shows it."""
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


def expect_equal(found: Any, expected: Any) -> None:
    """WrongAnswer, with the number of bytes that differ, unless all are equal."""
    pairs = list(zip(raw(found), raw(expected), strict=True))
    wrong = sum(int((a != b).sum()) for a, b in pairs)
    expect(wrong == 0, f"{wrong} of {sum(len(a) for a, _ in pairs)} BYTES DIFFER")


def compare(kernel: Kernel, device: str) -> None:
    """Expect that a small call has the bits of the CPU."""
    here = kernel.inputs(kernel.small)
    there = tuple(moved(v, device) for v in here)
    expected = kernel.call(*here)
    expect_equal((there, kernel.call(*there)), (here, expected))


def _contest(kernel: Kernel, device: str) -> Contest:
    compare(kernel, device)
    n = kernel.n
    if device == "cpu" and n > REHEARSED:
        n = max(REHEARSED // kernel.small, 1) * kernel.small
    cache = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 1 << 16
    size = max(1, int(n * kernel.traffic))
    count = kernel.sets or max(2, min(16, -(-4 * cache // size)))
    made = kernel.inputs(n)
    sets = [tuple(moved(v, device) for v in made) for _ in range(count)]

    def side(label: str, call: Callable[..., Any]) -> Side:
        names = {"call": call, "sets": itertools.cycle(sets)}
        return Side(label, "call(*next(sets))", names, is_kernel=True)

    beside = {}
    if kernel.beside is not None:
        other = side(kernel.against, kernel.beside)
        beside[kernel.against] = lambda: [other]
    return Contest(
        side("fastseed", kernel.call), lambda _: None, beside, traffic=n * kernel.traffic,
        reads=kernel.reads,
    )  # fmt: skip


def as_case(kernel: Kernel) -> Case:
    """Return a case that compares the bits of a kernel with the CPU's, then times it."""
    operation, _, size = kernel.name.partition("/")
    return Case(
        f"kernel.{operation}", size or str(kernel.n),
        {kernel.against: kernel.ratio} if kernel.beside is not None else {},
        functools.partial(_contest, kernel), devices=("cuda",), headline=kernel.headline,
        share=kernel.share,
    )  # fmt: skip
