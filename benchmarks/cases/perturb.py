"""Noise added to parameters, and a log of it, beside fresh noise from torch; on all threads."""

from __future__ import annotations

import functools

import torch
from torch import nn

import fastseed

from ..case import Case, Contest, Side, expect

SIZE = 1 << 24  # numbers of a model that is larger than the caches
LOG_SIZE = 1 << 20
SCALE = 1e-3
LOG = [(seed, 0.1) for seed in range(100)]


def model_of(size: int) -> nn.Module:
    """A model of four layers."""
    model = nn.ParameterList(torch.zeros(size // 4) for _ in range(4))
    return model.requires_grad_(requires_grad=False)


def add_normal(model: nn.Module) -> None:
    """Add noise from torch's generator."""
    for p in model.parameters():
        p.add_(torch.randn_like(p), alpha=SCALE)


def add_constant(model: nn.Module) -> None:
    """Add a number: as much memory is read and written as by any addition."""
    for p in model.parameters():
        p.add_(SCALE)


def add_log(model: nn.Module) -> None:
    """Add as much noise as the log has."""
    for _ in LOG:
        for p in model.parameters():
            p.add_(torch.randn(p.shape), alpha=SCALE * 0.1)


def moves(noise: str, threads: int) -> Contest:
    """One perturbation of a model."""
    model = model_of(SIZE)
    names = {"model": model, "perturb": fastseed.nn.perturb_, "scale": SCALE, "noise": noise}

    def check(contest: Contest) -> None:
        with fastseed.nn.perturbed(model, 7, -SCALE, noise=noise):
            first = model[0][:64].clone()
        seeder = fastseed.Seeder(7, rank=0, world_size=1)
        key = seeder.derive_key(f"perturb/{noise}/0", task=0, rank=fastseed.SHARED)
        z = fastseed.random.normal(key, 64)
        if noise == "rademacher":
            words = fastseed.random.bits(key, 2).tolist()
            z = torch.tensor([1.0 - 2 * (words[j // 32] >> j % 32 & 1) for j in range(64)])
        expect(torch.equal(first, torch.zeros(64) - SCALE * z), "the noise of the name")
        contest.fastseed.run()
        expect(torch.equal(model[0][:64], SCALE * z), "the noise of the name, added")
        expect(abs(float(model[1].std()) / SCALE - 1) < 0.01, "noise of the scale")

    side = Side("nn.perturb_", "perturb(model, 7, scale, noise=noise)", names, threads)
    beside = add_normal if noise == "normal" else add_constant
    label = "randn_like + add_" if noise == "normal" else "add_"
    baseline = Side(label, "add(model)", {"model": model, "add": beside}, threads)
    return Contest(side, (baseline,), check)


def log(threads: int) -> Contest:
    """A log of 100 entries, stored once."""
    model, one_by_one = model_of(LOG_SIZE), model_of(LOG_SIZE)

    def check(contest: Contest) -> None:
        contest.fastseed.run()
        for seed, scalar in LOG:
            fastseed.nn.perturb_(one_by_one, seed, SCALE * scalar)
        expect(torch.equal(model[3], one_by_one[3]), "the sum of all entries in their order")

    names = {"model": model, "apply": fastseed.nn.apply_log, "log": LOG, "scale": SCALE}
    side = Side("nn.apply_log", "apply(model, log, scale)", names, threads)
    baseline = Side("randn + add_", "add(model)", {"model": model, "add": add_log}, threads)
    return Contest(side, (baseline,), check)


def cases() -> list[Case]:
    """The rows of this module."""
    threads = torch.get_num_threads()
    size = f"{SIZE >> 20}m"
    return [
        Case(f"perturb/cpu/{size}-normal", "randn_like + add_", 3,
             functools.partial(moves, "normal", threads)),
        Case(f"perturb/cpu/{size}-rademacher", "add_", 0.7,
             functools.partial(moves, "rademacher", threads)),
        Case(f"apply_log/cpu/{LOG_SIZE >> 20}m-100-entries", "randn + add_", 5,
             functools.partial(log, threads)),
    ]  # fmt: skip
