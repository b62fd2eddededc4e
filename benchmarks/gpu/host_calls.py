"""Small calls as users make them: the host is their limit, not the device."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

import fastseed
from fastseed import debug, elastic, random, sampling

from .case import keys

if TYPE_CHECKING:
    from .times import Clock

Call = Callable[[], Any]


def calls(device: str) -> list[tuple[str, Call, str, Call]]:
    """Return name, call, and the baseline's name and call."""
    fastseed.init(42, rank=0, world_size=1)
    bank = random.StreamBank(64, "b", device)
    bank.reseed_from_seeds(range(64))
    pool = fastseed.GeneratorPool([torch.Generator(device) for _ in range(10**4)], "pool")
    members = [torch.Generator(device) for _ in range(10**4)]
    key, own = keys(1)[0].to(device), keys(8).to(device)
    logits = torch.randn(8, 32_000, device=device)
    at = torch.arange(8, device=device)
    x = torch.empty(64, device=device)
    tensors = [torch.randn(1000, device=device) for _ in range(100)]
    filters = {"top_k": 50, "top_p": 0.9}
    step = itertools.count()

    def seed_each() -> None:
        for seed, generator in enumerate(members):
            generator.manual_seed(seed)

    def norms() -> list[float]:
        return [value.item() for value in torch._foreach_norm(tensors)]

    return [
        ("fastseed.reseed", lambda: fastseed.reseed(1, 2, next(step)),
         "manual_seed", lambda: torch.manual_seed(next(step))),
        ("pool.reseed 1e4", lambda: pool.reseed(1, 2, next(step)),
         "loop of manual_seed", seed_each),
        ("bank.reseed", lambda: bank.reseed(1, 2, next(step)),
         "manual_seed", lambda: torch.manual_seed(next(step))),
        ("normal_ 64", lambda: random.normal_(x, key), "torch.normal_", lambda: x.normal_()),
        ("normal of a bank, 64 x 64", lambda: random.normal(bank, 64),
         "randn", lambda: torch.randn(64, 64, device=device)),
        ("sample 8 x 32000", lambda: sampling.sample(logits, own, at),
         "multinomial", lambda: torch.multinomial(logits.softmax(-1), 1)),
        ("sample, top_k and top_p", lambda: sampling.sample(logits, own, at, **filters),
         "sort", lambda: logits.sort(-1)),
        ("digest of 100 tensors", lambda: debug.digest(tensors), "norms to the host", norms),
        ("total norm of 100", lambda: elastic.get_total_norm(tensors),
         "get_total_norm", lambda: torch.nn.utils.get_total_norm(tensors)),
    ]  # fmt: skip


def line(
    name: str, ours: Call, against: str, theirs: Call, clock: Clock, quick: bool
) -> dict[str, Any]:
    """Return the line of a call."""
    from .times import timing

    times = clock.medians([[ours], [theirs]], quick)
    made = timing(f"host: {name}", times[0], 0, 1, against, times[1])
    return made | {"headline": name in ("fastseed.reseed", "pool.reseed 1e4"), "bits": ""}
