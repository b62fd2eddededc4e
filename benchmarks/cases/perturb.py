"""Noise added to parameters, and a log of it, beside fresh noise from torch; on all threads."""

from __future__ import annotations

import torch
from torch import nn

import fastseed

from .. import machine
from ..case import Case, Contest, Side, expect

SIZE = 1 << 24  # numbers of a model that is larger than the caches
LOG_SIZE = 1 << 20
SCALE = 1e-3
FRESH, FRESH_LOG = "randn_like + add_", "randn + add_"
LOG = [(seed, 0.1) for seed in range(100)]


def model_of(size: int) -> nn.Module:
    """A model of four layers."""
    model = nn.ParameterList(torch.zeros(size // 4) for _ in range(4))
    return model.requires_grad_(requires_grad=False)


def add_normal(model: nn.Module) -> None:
    """Add noise from torch's generator."""
    for p in model.parameters():
        p.add_(torch.randn_like(p), alpha=SCALE)


def add_log(model: nn.Module) -> None:
    """Add as much noise as the log has."""
    for _ in LOG:
        for p in model.parameters():
            p.add_(torch.randn(p.shape), alpha=SCALE * 0.1)


def moves(_: str) -> Contest:
    """One perturbation of a model."""
    model, threads = model_of(SIZE), machine.cores()
    names = {"model": model, "perturb": fastseed.nn.perturb_, "scale": SCALE}

    def check(side: Side) -> None:
        with fastseed.nn.perturbed(model, 7, -SCALE):
            first = model[0][:64].clone()
        seeder = fastseed.Seeder(7, rank=0, world_size=1)
        key = seeder.derive_key("perturb/normal/0", task=0, rank=fastseed.SHARED)
        z = fastseed.random.normal(key, 64)
        expect(torch.equal(first, torch.zeros(64) - SCALE * z), "the noise of the name")
        side.run()
        expect(torch.equal(model[0][:64], SCALE * z), "the noise of the name, added")
        expect(abs(float(model[1].std()) / SCALE - 1) < 0.01, "noise of the scale")

    side = Side("nn.perturb_", "perturb(model, 7, scale)", names, threads)
    theirs = Side("torch", "add(model)", {"model": model, "add": add_normal}, threads)
    return Contest(side, check, {FRESH: lambda: [theirs]})


def log(_: str) -> Contest:
    """A log of 100 entries, stored once."""
    model, one_by_one, threads = model_of(LOG_SIZE), model_of(LOG_SIZE), machine.cores()

    def check(side: Side) -> None:
        side.run()
        for seed, scalar in LOG:
            fastseed.nn.perturb_(one_by_one, seed, SCALE * scalar)
        expect(torch.equal(model[3], one_by_one[3]), "the sum of all entries in their order")

    names = {"model": model, "apply": fastseed.nn.apply_log, "log": LOG, "scale": SCALE}
    side = Side("nn.apply_log", "apply(model, log, scale)", names, threads)
    theirs = Side("torch", "add(model)", {"model": model, "add": add_log}, threads)
    return Contest(side, check, {FRESH_LOG: lambda: [theirs]})


def cases() -> list[Case]:
    """The rows of this module."""
    return [
        Case("perturb", f"{SIZE >> 20}m-normal", {FRESH: 3}, moves),
        Case("apply_log", f"{LOG_SIZE >> 20}m-100-entries", {FRESH_LOG: 5}, log),
    ]
