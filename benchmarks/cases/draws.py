"""Draws: very many streams, and one long one."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

import fastseed

from .. import laws, machine
from ..baselines import curand, jax_draws
from ..case import Case, Contest, Side, expect
from ..laws import NORMAL, UNIFORM, Law

MASTER, NAME, TASK = 42, "bench", 1
LAWS: dict[str, Law] = {"uniform": UNIFORM, "normal": NORMAL}
LOOP, JAX = "loop of torch's, generator=g", "JAX vmap"


def some_keys(n: int) -> torch.Tensor:
    """n keys, (n, 2) uint64."""
    return fastseed.Seeder(MASTER, 1, 0).derive_keys(NAME, n, task=TASK)


def some_bank(n: int, device: str) -> Any:
    """A bank of n streams, at a scope."""
    fastseed.init(MASTER, 1, 0)
    bank = fastseed.random.StreamBank(n, NAME, device)
    bank.reseed(TASK)
    return bank


# ---------------------------------------------------------------------------- many streams


def from_keys(kind: str, n: int, length: int, device: str) -> Contest:
    """n rows into fresh memory; torch's into memory that exists."""
    law, keys = LAWS[kind], some_keys(n).to(device)
    out = torch.zeros(n, length, dtype=law.dtype, device=device)
    names = {"draw": getattr(fastseed.random, kind), "keys": keys, "length": length}

    def check(side: Side) -> None:
        start = torch.zeros(n, dtype=torch.int64, device=device)
        laws.expect_rows(law, side.run(), keys, start)

    def loop() -> list[Side]:
        generators = [torch.Generator(device).manual_seed(i) for i in range(n)]
        pairs = list(zip(generators, out.unbind(), strict=True))
        return [Side("loop", f"for g, row in pairs: row.{kind}_(generator=g)", {"pairs": pairs})]

    def check_loop(side: Side) -> None:
        laws.poison(out)
        side.run()
        laws.expect_baseline(law, out, (n, length), side.label)

    side = Side("fastseed", "draw(keys, length)", names)
    return Contest(side, check, {LOOP: loop}, check_loop)


def from_bank(kind: str, n: int, length: int, device: str) -> Contest:
    """Fresh memory and all cores for both: JAX has it no other way."""
    law, bank = LAWS[kind], some_bank(n, device)
    names = {"draw": getattr(fastseed.random, kind), "bank": bank, "length": length}

    def check(side: Side) -> None:
        before = bank.positions.clone()
        laws.expect_rows(law, side.run(), bank.keys, before)
        expect(bool((bank.positions > before).all()), "the positions moved on")

    def check_jax(side: Side) -> None:
        laws.expect_baseline(law, side.run(), (n, length), side.label)

    side = Side("fastseed", "draw(bank, length)", names, machine.cores())
    ways = functools.partial(jax_draws.draw_sides, kind, n, length, device)
    return Contest(side, check, {JAX: ways}, check_jax)


def reseed(n: int, threads: int, device: str) -> Contest:
    """n keys by ``jax.random.split``, or the same bytes, all zero: what no generator can beat."""
    bank = some_bank(n, device)
    zeros = torch.ones(3 * n, dtype=torch.int64, device=device)  # a key's two words, a position

    def check(side: Side) -> None:
        laws.poison(bank.keys)
        bank.positions.fill_(8)
        side.run()
        right = some_keys(n).view(torch.int64)
        expect(torch.equal(bank.keys.cpu().view(torch.int64), right), "the keys")
        expect(not bank.positions.any(), "the positions")

    beside = {
        "jax.random.split": lambda: jax_draws.split_sides(n, device),
        "memset": lambda: [Side("memset", "out.zero_()", {"out": zeros})],
    }
    del beside["memset" if threads > 1 else "jax.random.split"]
    side = Side("fastseed", "bank.reseed(task)", {"bank": bank, "task": TASK}, threads)
    return Contest(side, check, beside)


# ---------------------------------------------------------------------------- one stream


def one_stream(kind: str, n: int, contenders: tuple[str, ...], device: str) -> Contest:
    """One stream of n numbers, into memory that exists."""
    law, key = LAWS[kind], some_keys(1)[0].to(device)
    n = n // 100 if device == "cpu" and len(contenders) > 1 else n  # a rehearsal
    out = torch.zeros(n, device=device)
    names = {"fill": getattr(fastseed.random, f"{kind}_"), "key": key, "out": out}

    def check(side: Side) -> None:
        laws.poison(out)
        side.run()
        laws.expect_stream(law, out, key)

    def check_beside(side: Side) -> None:
        laws.poison(out)
        side.run()
        closed = dataclasses.replace(law, high=max(law.high, 1.0))  # cuRAND's has 1
        laws.expect_baseline(closed, out, (n,), side.label)

    def ways(label: str) -> list[Side]:
        if label == "torch":
            return [Side("torch", f"out.{kind}_()", {"out": out}, is_kernel=True)]
        return [curand.side(label, kind, out)]

    beside = {label: functools.partial(ways, label) for label in contenders}
    side = Side("fastseed", "fill(out, key)", names, is_kernel=True)
    return Contest(side, check, beside, check_beside)


def cases() -> list[Case]:
    """The rows of this module."""
    size, shape, both = "4096x1024", (4096, 1024), ("cpu", "cuda")
    rows = []
    for kind in LAWS:
        headline = kind == "uniform"
        rows += [
            Case(kind, size, {LOOP: None}, functools.partial(from_keys, kind, *shape),
                 devices=both, headline=headline),
            Case(f"bank.{kind}", size, {JAX: None}, functools.partial(from_bank, kind, *shape),
                 threads="all", devices=both, headline=headline),
        ]  # fmt: skip
    return [
        *rows,
        Case("bank.reseed", "1e6", {"memset": None}, functools.partial(reseed, 10**6, 1),
             devices=both, headline=True),
        Case("bank.reseed", "1e6", {"jax.random.split": None},
             functools.partial(reseed, 10**6, machine.cores()), threads="all", devices=both,
             headline=True),
        Case("normal_", "1e7", {"torch": None},
             functools.partial(one_stream, "normal", 10**7, ("torch",))),
        *(
            Case(f"{kind}_", "1e8", {"torch": None, "cuRAND XORWOW": 1, "cuRAND Philox": None},
                 functools.partial(one_stream, kind, 10**8, ("torch", *curand.KINDS)),
                 devices=("cuda",))
            for kind in ("uniform", "normal")
        ),
    ]  # fmt: skip
