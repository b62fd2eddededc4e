"""Seeds and keys without a generator: one, and very many."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import torch

import fastseed
from fastseed._backend import derive
from fastseed._backend.reference import philox, scalar

from .. import machine
from ..baselines import fwr13y, jax_draws, numpy_bits, random123, torch_keys
from ..case import Case, Contest, Side, expect

MASTER, NAME, EPOCH = 42, "bench", 7
WHERE = f"{NAME!r}, n, task=1, epoch={EPOCH}, out=out"


def one_seed(_: str) -> Contest:
    """One call of the public function, which checks its arguments."""
    seeder = fastseed.Seeder(MASTER, 1, 0)
    names = {"seed": seeder.derive_seed, "epochs": itertools.count()}
    side = Side("seed", "seed('torch.cpu', task=1, epoch=next(epochs))", names)

    def theirs() -> list[Side]:
        names = {"seed_gen": fwr13y.seed_gen(MASTER, 1, 0), "epochs": itertools.count()}
        return [Side(fwr13y.LABEL, "seed_gen(1, next(epochs))", names)]

    def check(made: Side) -> None:
        epoch = next(made.names["epochs"])
        scope = scalar.scope_key(MASTER, 1, epoch, 0)
        key = scalar.stream_key(scalar.name_key(scope, scalar.name_words("torch.cpu")), 0, 0, 0)
        low = made.run(epochs=iter([epoch])) & (2**64 - 1)
        expect(low == key & (2**64 - 1), "the seed of torch.cpu")

    def check_theirs(made: Side) -> None:
        expect(0 <= made.run() < 2**31, "fwr13y's seed")

    return Contest(side, check, {"fwr13y SeedGen": theirs}, check_theirs)


def _right_keys(n: int) -> Any:
    scope = scalar.scope_key(MASTER, 1, EPOCH, 0)
    name = scalar.name_key(scope, scalar.name_words(NAME))
    return philox.derive_keys(name, 0, 0, 0, n)


def _expect_seeds(side: Side) -> None:
    """That a side writes the reference's seeds into its ``out``."""
    out = side.names["out"]
    out.zero_()
    side.run()
    right = np.array_equal(out.cpu().numpy(), _right_keys(len(out))[:, 0])
    expect(right, f"seeds of {side.label}")


def seeds(n: int, device: str) -> Contest:
    """Into memory that exists; Random123 makes the same numbers from the same counters."""
    out = torch.zeros(n, dtype=torch.uint64, device=device)  # written: its pages exist
    names = {"derive_seeds": fastseed.Seeder(MASTER, 1, 0).derive_seeds, "n": n, "out": out}

    def same_numbers() -> list[Side]:
        scope = derive.scope_key(MASTER, 1, EPOCH, 0)
        name = derive.name_key(scope, scalar.name_words(NAME))
        return [random123.side(*name, scalar.DOMAIN_STREAM << 24, out)]

    def check_beside(side: Side) -> None:
        (_expect_seeds if side.label == "Random123" else numpy_bits.check)(side)

    beside = {
        "NumPy SFC64": lambda: numpy_bits.sides("SFC64", out.numpy()),
        "Random123": same_numbers,
    }
    side = Side("derive_seeds", f"derive_seeds({WHERE})", names)
    return Contest(side, _expect_seeds, beside, check_beside)


def keys(n: int, device: str) -> Contest:
    """Into memory that exists, on all cores; JAX and torch return fresh memory."""
    threads = machine.cores()
    out = torch.zeros(n, 2, dtype=torch.uint64, device=device)
    names = {"derive_keys": fastseed.Seeder(MASTER, 1, 0).derive_keys, "n": n, "out": out}

    def check(side: Side) -> None:
        out.zero_()
        side.run()
        expect(np.array_equal(out.cpu().numpy(), _right_keys(n)), "the keys")

    beside = {
        "jax.random.split": lambda: jax_draws.split_sides(n, device),
        "torch.func._random.split": lambda: [
            torch_keys.side(device, "stateless.split(key, n)", threads, n=n)
        ],
    }
    side = Side("derive_keys", f"derive_keys({WHERE})", names, threads)
    return Contest(side, check, beside)


def cases() -> list[Case]:
    """The rows of this module."""
    n, size = 10**6, "1e6"
    return [
        Case("derive_seeds", size, {"NumPy SFC64": 2.3, "Random123": 2.5},
             functools.partial(seeds, n), headline=True),
        Case("derive_keys", size, {"jax.random.split": None, "torch.func._random.split": None},
             functools.partial(keys, n), threads="all", devices=("cpu", "cuda"), headline=True),
        Case("derive_seed", "1", {"fwr13y SeedGen": None}, one_seed),
    ]  # fmt: skip
