"""The exact norm beside torch's, and clipping a model of many tensors."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import torch

import fastseed

from ..case import Case, Contest, Side, expect

SIZES = {"1e5": 10**5, "1e6": 10**6, "1e7": 10**7}
TENSORS = 100


def _check(contest: Contest) -> None:
    """Check the norm of a part against exact fractions, and the whole against torch's."""
    part = contest.fastseed.names["x"][:1000]
    square = sum(Fraction(value) ** 2 for value in part.tolist())
    found = fastseed.elastic.get_total_norm(part.double()).item()
    half = Fraction(math.ulp(found)) / 2
    expect(
        (Fraction(found) - half) ** 2 <= square <= (Fraction(found) + half) ** 2,
        "the norm of a part",
    )
    exact = torch.linalg.vector_norm(contest.fastseed.names["x"].double())
    ours, theirs = contest.fastseed.run().double(), contest.baselines[0].run().double()
    expect(torch.allclose(ours, exact, rtol=1e-7), "the exact norm of the whole")
    # that of torch is added up in float32: three digits are left of 10^7 values
    expect(torch.allclose(theirs, exact, rtol=1e-2), "torch's norm of the whole")


def norm(size: int, threads: int) -> Contest:
    x = torch.randn(size, generator=torch.Generator().manual_seed(1))
    names = {"fastseed": fastseed, "torch": torch, "x": x}
    ours = Side("exact norm", "fastseed.elastic.get_total_norm(x)", names, threads)
    theirs = Side("vector_norm", "torch.linalg.vector_norm(x)", names, threads)
    return Contest(ours, (theirs,), _check)


def clip() -> Contest:
    """Clip 100 gradients, 6.4 MB, that are short enough to stay as they are."""
    parameters = [torch.nn.Parameter(torch.zeros(128, 125)) for _ in range(TENSORS)]
    generator = torch.Generator().manual_seed(1)
    for parameter in parameters:
        parameter.grad = torch.randn(128, 125, generator=generator)
    names = {"fastseed": fastseed, "torch": torch, "parameters": parameters}

    def check(contest: Contest) -> None:
        ours, theirs = contest.fastseed.run(), contest.baselines[0].run()
        expect(torch.allclose(ours, theirs, rtol=1e-4), "the norm")

    ours = Side("clip_grad_norm_", "fastseed.elastic.clip_grad_norm_(parameters, 1e6)", names)
    theirs = Side("torch", "torch.nn.utils.clip_grad_norm_(parameters, 1e6)", names)
    return Contest(ours, (theirs,), check)


def cases() -> list[Case]:
    """The rows of this module; the aim is at most twice the time of ``vector_norm``."""
    return [
        *(
            Case(
                f"exact_norm/cpu{'-2t' if threads == 2 else ''}/{label}",
                "torch.linalg.vector_norm",
                0.5,
                functools.partial(norm, size, threads),
            )
            for threads in (1, 2)
            for label, size in SIZES.items()
        ),
        Case(f"clip_grad_norm/cpu/{TENSORS}-tensors", "torch.nn.utils", None, clip),
    ]
