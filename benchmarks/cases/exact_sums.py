"""The exact norm beside torch's, and clipping a model of many tensors."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import torch

import fastseed

from ..case import Case, Contest, Side, expect

TENSORS = 100
LABEL = "torch.nn.utils.get_total_norm"


def norm(size: int, _: str) -> Contest:
    """The norm of one tensor."""
    x = torch.randn(size, generator=torch.Generator().manual_seed(1))
    names = {"fastseed": fastseed, "torch": torch, "x": x}
    exact = torch.linalg.vector_norm(x.double())

    def check(side: Side) -> None:
        """Check the norm of a part against exact fractions, and the whole against torch's."""
        square = sum(Fraction(value) ** 2 for value in x[:1000].tolist())
        found = fastseed.elastic.get_total_norm(x[:1000].double()).item()
        half = Fraction(math.ulp(found)) / 2
        near = (Fraction(found) - half) ** 2 <= square <= (Fraction(found) + half) ** 2
        expect(near, "the norm of a part")
        expect(torch.allclose(side.run().double(), exact, rtol=1e-7), "the norm of the whole")

    def check_torch(side: Side) -> None:
        # added up in float32: three digits are left of 10^7 values
        expect(torch.allclose(side.run().double(), exact, rtol=1e-2), "torch's norm")

    side = Side("exact norm", "fastseed.elastic.get_total_norm(x)", names)
    theirs = Side("torch", "torch.nn.utils.get_total_norm(x)", names)
    return Contest(side, check, {LABEL: lambda: [theirs]}, check_torch)


def clip(shrink: float, device: str) -> Contest:
    """Clip 100 gradients, 6.4 MB, to a limit that each call multiplies by ``shrink``."""
    sides = []
    for utils in (fastseed.elastic, torch.nn.utils):
        generator = torch.Generator().manual_seed(1)
        parameters = [
            torch.nn.Parameter(torch.zeros(128, 125, device=device)) for _ in range(TENSORS)
        ]
        for parameter in parameters:
            parameter.grad = torch.randn(128, 125, generator=generator).to(device)
        norm = float(torch.nn.utils.get_total_norm([p.grad for p in parameters]))
        limits = (norm * shrink**k for k in itertools.count())
        names = {"utils": utils, "parameters": parameters, "limits": limits}
        call = "utils.clip_grad_norm_(parameters, next(limits))"
        sides.append(Side(utils.__name__, call, names))

    def check(side: Side) -> None:
        ours, theirs = side.run(), sides[1].run()
        expect(torch.allclose(ours, theirs, rtol=1e-4), "the norm")
        for one, other in zip(*(each.names["parameters"] for each in sides), strict=True):
            expect(torch.allclose(one.grad, other.grad, rtol=1e-4), "the gradients")

    return Contest(sides[0], check, {"torch.nn.utils": lambda: [sides[1]]})


def cases() -> list[Case]:
    """The rows of this module."""
    return [
        Case("exact_norm", "1e7", {LABEL: 0.5}, functools.partial(norm, 10**7)),
        Case("clip_grad_norm", f"{TENSORS}-tensors-scaled", {"torch.nn.utils": 0.9},
             functools.partial(clip, 0.9), devices=("cpu", "cuda")),
    ]  # fmt: skip
