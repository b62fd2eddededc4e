"""The exact norm beside torch's, and clipping a model of many tensors."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import torch

import fastseed

from ..case import Case, Contest, Side, expect

SIZES = {"1e5": 10**5, "1e6": 10**6, "1e7": 10**7}
TENSORS = 100
CLIPPED = (("unchanged", 1.0001, 1.0), ("scaled", 0.9999, 0.9))


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
    theirs = Side("get_total_norm", "torch.nn.utils.get_total_norm(x)", names, threads)
    return Contest(ours, (theirs,), _check)


def clip(shrink: float, threads: int) -> Contest:
    """Clip 100 gradients, 6.4 MB, to a limit that each call multiplies by ``shrink``."""
    sides = []
    for utils in (fastseed.elastic, torch.nn.utils):
        generator = torch.Generator().manual_seed(1)
        parameters = [torch.nn.Parameter(torch.zeros(128, 125)) for _ in range(TENSORS)]
        for parameter in parameters:
            parameter.grad = torch.randn(128, 125, generator=generator)
        norm = float(torch.nn.utils.get_total_norm([p.grad for p in parameters]))
        limits = (norm * shrink**k for k in itertools.count())
        names = {"utils": utils, "parameters": parameters, "limits": limits}
        label, call = utils.__name__, "utils.clip_grad_norm_(parameters, next(limits))"
        sides.append(Side(f"{label}.clip_grad_norm_", call, names, threads))

    def check(contest: Contest) -> None:
        ours, theirs = contest.fastseed.run(), contest.baselines[0].run()
        expect(torch.allclose(ours, theirs, rtol=1e-4), "the norm")
        for one, other in zip(*(side.names["parameters"] for side in sides), strict=True):
            expect(torch.allclose(one.grad, other.grad, rtol=1e-4), "the gradients")

    return Contest(sides[0], (sides[1],), check)


def cases() -> list[Case]:
    """The rows of this module."""
    return [
        *(
            Case(
                f"exact_norm/cpu{'-2t' if threads == 2 else ''}/{label}",
                "torch.nn.utils.get_total_norm",
                0.5,
                functools.partial(norm, size, threads),
            )
            for threads in (1, 2)
            for label, size in SIZES.items()
        ),
        *(
            Case(
                f"clip_grad_norm/cpu{'-2t' if threads == 2 else ''}/{TENSORS}-tensors-{label}",
                "torch.nn.utils",
                target,
                functools.partial(clip, shrink, threads),
            )
            for threads in (1, 2)
            for label, shrink, target in CLIPPED
        ),
    ]
