"""Seeds without a generator: one, and very many."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import fastseed
from fastseed._backend import derive
from fastseed._backend.reference import philox, scalar

from .. import machine
from ..baselines import fwr13y, multiplies, numpy_bits, random123
from ..case import Case, Contest, Side, Unavailable, expect

MASTER, NAME, EPOCH = 42, "bench", 7

INTO = f"derive_seeds({NAME!r}, n, task=1, epoch={EPOCH}, out=out)"
FRESH = f"derive_seeds({NAME!r}, n, task=1, epoch={EPOCH})"


# ---------------------------------------------------------------------------- one seed


def _against_seed_gen(side: Side) -> Contest:
    names = {"seed_gen": fwr13y.seed_gen(MASTER, 1, 0), "epochs": itertools.count()}
    baseline = Side(fwr13y.LABEL, "seed_gen(1, next(epochs))", names)

    def check(contest: Contest) -> None:
        epoch = next(contest.fastseed.names["epochs"])
        scope = scalar.scope_key(MASTER, 1, epoch, 0)
        name = scalar.name_key(scope, scalar.name_words("torch.cpu"))
        key = scalar.stream_key(name, 0, 0, 0)
        low = contest.fastseed.run(epochs=iter([epoch])) & (2**64 - 1)
        expect(low == key & (2**64 - 1), "the seed of torch.cpu")
        expect(0 <= baseline.run() < 2**31, "fwr13y's seed")

    return Contest(side, (baseline,), check)


def one_seed() -> Contest:
    """One call of the public function, which checks its arguments."""
    seeder = fastseed.Seeder(MASTER, 1, 0)
    names = {"seed": seeder.derive_seed, "epochs": itertools.count()}
    return _against_seed_gen(Side("seed", "seed('torch.cpu', task=1, epoch=next(epochs))", names))


# ---------------------------------------------------------------------------- many seeds


def _right_answer(n: int) -> Any:
    scope = scalar.scope_key(MASTER, 1, EPOCH, 0)
    name = scalar.name_key(scope, scalar.name_words(NAME))
    return philox.derive_keys(name, 0, 0, 0, n)[:, 0]


def _expect_seeds(side: Side) -> None:
    """That a side writes the reference's seeds into its ``out``, or returns them."""
    out = side.names.get("out")
    if out is not None:
        out.fill_(0)
    value = side.run()
    made = out if out is not None else value
    expect(np.array_equal(made.numpy(), _right_answer(side.names["n"])), f"seeds of {side.label}")


def _check_against_numpy(contest: Contest) -> None:
    _expect_seeds(contest.fastseed)
    for baseline in contest.baselines:
        numpy_bits.check(baseline)


def _ours(n: int, out: torch.Tensor | None, threads: int = 1) -> Side:
    seeder = fastseed.Seeder(MASTER, 1, 0)
    names = {"derive_seeds": seeder.derive_seeds, "n": n, "out": out}
    return Side("derive_seeds", FRESH if out is None else INTO, names, threads)


def _buffer(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.uint64)  # written: its pages exist


def against_numpy(kind: str, n: int) -> Contest:
    """Into memory that exists, both."""
    out = _buffer(n)
    baselines = numpy_bits.sides(kind, n, out.numpy())
    return Contest(_ours(n, out), baselines, _check_against_numpy)


def fresh_against_numpy(kind: str, n: int) -> Contest:
    """Into memory that each call asks for."""
    return Contest(_ours(n, None), numpy_bits.sides(kind, n), _check_against_numpy)


@contextmanager
def _simd(name: str | None) -> Iterator[None]:
    before = derive.simd()
    if name is not None:
        torch.ops.fastseed.choose_simd_path(name)
    try:
        yield
    finally:
        if name is not None:
            torch.ops.fastseed.choose_simd_path(before)


def against_random123(n: int, simd: str | None = None) -> Contest:
    """The same numbers from the same counters, in the same memory."""
    if simd is not None and simd not in derive.simd_paths():
        raise Unavailable(f"this CPU, or this build, has no {simd} path")
    out = _buffer(n)
    scope = derive.scope_key(MASTER, 1, EPOCH, 0)
    name = derive.name_key(scope, scalar.name_words(NAME))
    rank_word = scalar.DOMAIN_STREAM << 24
    baseline = random123.side(*name, rank_word, 0, n, out.data_ptr())

    def check(contest: Contest) -> None:
        _expect_seeds(contest.fastseed)
        _expect_seeds(Side(baseline.label, baseline.statement, {**baseline.names, "out": out}))

    return Contest(_ours(n, out), (baseline,), check, context=functools.partial(_simd, simd))


def against_multiplies(n: int) -> Contest:
    """The ratio is the share of the CPU's multiplies that is reached: it cannot pass 1."""
    baseline = multiplies.side(n, derive.simd())

    def check(contest: Contest) -> None:
        _expect_seeds(contest.fastseed)
        multiplies.check(baseline)

    return Contest(_ours(n, _buffer(n)), (baseline,), check)


def two_threads(n: int) -> Contest:
    """Two threads against one."""
    if machine.cores() < 2:
        raise Unavailable("there is one core")
    out = _buffer(n)

    def check(contest: Contest) -> None:
        for side in (contest.fastseed, *contest.baselines):
            _expect_seeds(side)

    return Contest(_ours(n, out, threads=2), (_ours(n, out),), check)


def _bulk(n: int, size: str) -> list[Case]:
    name = f"derive_seeds/cpu/{size}"
    return [
        Case(name, "NumPy SFC64", 2.3, functools.partial(against_numpy, "SFC64", n)),
        Case(name, "NumPy Philox", 5, functools.partial(against_numpy, "Philox", n)),
        Case(name, "Random123", 2.5, functools.partial(against_random123, n)),
        Case(f"derive_seeds/cpu-2t/{size}", "one thread", 1.7, functools.partial(two_threads, n)),
    ]


def _fresh(n: int, size: str) -> Case:
    build = functools.partial(fresh_against_numpy, "SFC64", n)
    return Case(f"derive_seeds_fresh/cpu/{size}", "NumPy SFC64", None, build)


def cases() -> list[Case]:
    """The rows of this module."""
    one, many = 10**6, 10**7
    paths = [
        Case(f"derive_seeds/cpu-{simd}/1e6", "Random123", None,
             functools.partial(against_random123, one, simd))
        for simd in ("avx2", "portable")
    ]  # fmt: skip
    return [
        Case("derive_seed/cpu/1", "fwr13y SeedGen", None, one_seed),
        *_bulk(one, "1e6"),
        Case(
            "derive_seeds/cpu/1e6",
            "the multiplies alone",
            None,
            functools.partial(against_multiplies, one),
        ),
        *_bulk(many, "1e7"),
        *paths,
        _fresh(1, "1"),
        _fresh(10**3, "1e3"),
        _fresh(one, "1e6"),
        _fresh(many, "1e7"),
    ]
