"""Dropout: forward and backward of a large tensor, beside torch's, on all threads."""

from __future__ import annotations

import torch

import fastseed

from .. import machine
from ..case import Case, Contest, Side, expect

SIZE = 4096
P = 0.1
KEY = 42
LABEL = "torch.nn.functional.dropout"


def _rate(side: Side) -> torch.Tensor:
    """Check that a side drops about a tenth, and return its gradient."""
    side.run()
    gradient: torch.Tensor = side.names["x"].grad
    rate = float((gradient == 0).float().mean())
    expect(abs(rate - P) < 1e-3, f"a rate of {P}, got {rate}")
    return gradient


def _check(side: Side) -> None:
    """The mask is that of the elements one by one."""
    gradient = _rate(side).view(-1)
    for j in (0, 1, 4097, SIZE * SIZE - 1):
        one = side.names["dropout"](gradient.new_ones(1), P, KEY, offset=j)
        expect(bool(gradient[j] == one * side.names["seed"].view(-1)[j]), f"element {j}")


def against_torch(_: str) -> Contest:
    """A fresh output and a fresh gradient in each run, as in training."""
    generator, threads = torch.Generator().manual_seed(1), machine.cores()
    x = torch.randn(SIZE, SIZE, generator=generator).requires_grad_()
    key = torch.tensor([KEY, 0], dtype=torch.uint64)
    names = {"x": x, "seed": torch.ones(SIZE, SIZE), "key": key, "p": P}
    run = "x.grad = None; dropout(x, p{}).backward(seed)"
    ours = {**names, "dropout": fastseed.nn.functional.dropout}
    theirs = {**names, "dropout": torch.nn.functional.dropout}
    side = Side("nn.functional.dropout", run.format(", key"), ours, threads)
    other = Side("torch", run.format(""), theirs, threads)
    return Contest(side, _check, {LABEL: lambda: [other]}, _rate)


def cases() -> list[Case]:
    """The row of this module."""
    return [Case("dropout", f"{SIZE}x{SIZE}-forward-backward", {LABEL: 3}, against_torch)]
