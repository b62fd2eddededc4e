"""Dropout: forward and backward of a large tensor, beside torch's, on all threads."""

from __future__ import annotations

import functools

import torch

import fastseed

from ..case import Case, Contest, Side, expect

SIZE = 4096
P = 0.1
KEY = 42


def _check(contest: Contest) -> None:
    """Both drop about a tenth; fastseed's mask is that of its elements one by one."""
    for side in (*contest.baselines, contest.fastseed):
        side.run()
        gradient = side.names["x"].grad
        rate = float((gradient == 0).float().mean())
        expect(abs(rate - P) < 1e-3, f"a rate of {P}, got {rate}")
    gradient = contest.fastseed.names["x"].grad.view(-1)
    for j in (0, 1, 4097, SIZE * SIZE - 1):
        one = contest.fastseed.names["dropout"](gradient.new_ones(1), P, KEY, offset=j)
        expect(
            bool(gradient[j] == one * contest.fastseed.names["seed"].view(-1)[j]), f"element {j}"
        )


def against_torch(dtype: torch.dtype, threads: int) -> Contest:
    """A fresh output and a fresh gradient in each run, as in training."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SIZE, SIZE, generator=generator).to(dtype).requires_grad_()
    seed = torch.ones(SIZE, SIZE, dtype=dtype)
    key = torch.tensor([KEY, 0], dtype=torch.uint64)
    names = {"x": x, "seed": seed, "key": key, "p": P}
    ours = {**names, "dropout": fastseed.nn.functional.dropout}
    theirs = {**names, "dropout": torch.nn.functional.dropout}
    run = "x.grad = None; dropout(x, p{}).backward(seed)"
    side = Side("nn.functional.dropout", run.format(", key"), ours, threads)
    baseline = Side("torch.nn.functional.dropout", run.format(""), theirs, threads)
    return Contest(side, (baseline,), _check)


def cases() -> list[Case]:
    """The rows of this module."""
    threads = torch.get_num_threads()
    size = f"{SIZE}x{SIZE}-forward-backward"
    baseline = "torch.nn.functional.dropout"
    return [
        Case(f"dropout/cpu/{size}", baseline, 3,
             functools.partial(against_torch, torch.float32, threads)),
        Case(f"dropout/cpu/{size}-bfloat16", baseline, None,
             functools.partial(against_torch, torch.bfloat16, threads)),
    ]  # fmt: skip
