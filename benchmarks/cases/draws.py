"""Draws: very many streams, and one long one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

import fastseed

from .. import laws, machine
from ..baselines import jax_draws, one_stream, stream_each
from ..case import Case, Contest, Side, expect
from ..laws import NORMAL, RANDINT, UNIFORM, Law

MASTER, NAME, TASK = 42, "bench", 1
LAWS: dict[str, Law] = {"uniform": UNIFORM, "normal": NORMAL, "randint": RANDINT}

# What draws each law: from keys and from a bank into fresh memory, and in place.
FROM_KEYS = {
    "uniform": "uniform(keys, length)",
    "normal": "normal(keys, length)",
    "randint": f"randint(keys, (length,), 0, {laws.RANGE})",
}
FROM_BANK = {
    "uniform": "uniform(bank, length)",
    "normal": "normal(bank, length)",
    "randint": f"randint(bank, (length,), 0, {laws.RANGE}, dtype=int32)",  # as JAX has it
}
IN_PLACE = {"uniform": "uniform_(out, key)", "normal": "normal_(out, key)"}


def public(name: str) -> Any:
    """Return a function or class of fastseed.random."""
    return getattr(fastseed.random, name)


def written(shape: tuple[int, ...], law: Law) -> torch.Tensor:
    """Memory whose pages exist."""
    return torch.zeros(shape, dtype=law.dtype)


def some_keys(n: int) -> torch.Tensor:
    """n keys, (n, 2) uint64."""
    return fastseed.Seeder(MASTER, 1, 0).derive_keys(NAME, n, task=TASK)


def some_bank(n: int) -> Any:
    """A bank of n streams, at a scope."""
    fastseed.init(MASTER, 1, 0)
    bank = public("StreamBank")(n, name=NAME)
    bank.reseed(TASK)
    return bank


# ---------------------------------------------------------------------------- from keys


def _check_rows(law: Law, contest: Contest) -> None:
    keys, out = contest.fastseed.names["keys"], contest.fastseed.names["out"]
    found = contest.fastseed.run()
    laws.expect_rows(law, found, keys, torch.zeros(len(keys), dtype=torch.int64))
    for baseline in contest.baselines:
        laws.poison(out)
        baseline.run()
        laws.expect_baseline(law, out, tuple(out.shape), baseline.label)


Baselines = Callable[[str, torch.Tensor], tuple[Side, ...]]


def from_keys(kind: str, n: int, length: int, baselines: Baselines) -> Contest:
    """n rows into fresh memory; the baselines' into memory that exists."""
    law = LAWS[kind]
    out, function = written((n, length), law), FROM_KEYS[kind].partition("(")[0]
    names = {function: public(function), "keys": some_keys(n), "length": length, "out": out}
    side = Side("fastseed", FROM_KEYS[kind], names)
    return Contest(side, baselines(kind, out), functools.partial(_check_rows, law))


def _check_stream(law: Law, contest: Contest) -> None:
    out = contest.fastseed.names["out"]
    laws.poison(out)
    contest.fastseed.run()
    laws.expect_stream(law, out, contest.fastseed.names["key"])
    for baseline in contest.baselines:
        laws.poison(out)
        baseline.run()
        laws.expect_baseline(law, out, tuple(out.shape), baseline.label)


def in_place(kind: str, n: int, baselines: Baselines) -> Contest:
    """One stream of n numbers, into memory that exists."""
    law = LAWS[kind]
    out, function = written((n,), law), IN_PLACE[kind].partition("(")[0]
    names = {function: public(function), "key": some_keys(1)[0], "out": out}
    side = Side("fastseed", IN_PLACE[kind], names)
    return Contest(side, baselines(kind, out), functools.partial(_check_stream, law))


# ---------------------------------------------------------------------------- beside JAX


def _check_bank(law: Law, length: int, contest: Contest) -> None:
    bank = contest.fastseed.names["bank"]
    before = bank.positions.clone()
    out = contest.fastseed.run()
    laws.expect_rows(law, out, bank.keys, before)
    expect(bool((bank.positions > before).all()), "the positions moved on")
    for baseline in contest.baselines:
        laws.expect_baseline(law, baseline.run(), (len(bank.keys), length), baseline.label)


def bank_beside_jax(kind: str, n: int, length: int) -> Contest:
    """Fresh memory and all cores for both: JAX has it no other way."""
    jax_draws.on_cpu()
    names = {kind: public(kind), "bank": some_bank(n), "length": length, "int32": torch.int32}
    side = Side("fastseed", FROM_BANK[kind], names, threads=machine.cores())
    baselines = jax_draws.draw_sides(kind, n, length)
    return Contest(side, baselines, functools.partial(_check_bank, LAWS[kind], length))


def _check_reseed(contest: Contest) -> None:
    bank = contest.fastseed.names["bank"]
    laws.poison(bank.keys)
    bank.positions.fill_(8)
    contest.fastseed.run()
    right = some_keys(len(bank.keys))
    expect(torch.equal(bank.keys.view(torch.int64), right.view(torch.int64)), "the keys")
    expect(not bank.positions.any(), "the positions")
    for baseline in contest.baselines:
        kept = baseline.names.get("kept")
        if kept is not None:
            laws.poison(kept)
        made = baseline.run()
        right = not kept.any() if kept is not None else len(made) == len(bank.keys)
        expect(right, f"what {baseline.label} left")


def _reseeder(n: int, threads: int) -> Side:
    names = {"bank": some_bank(n), "task": TASK}
    return Side("fastseed", "bank.reseed(task)", names, threads)


def reseed_beside_jax(n: int) -> Contest:
    """n keys by ``jax.random.split``."""
    jax_draws.on_cpu()
    side = _reseeder(n, machine.cores())
    return Contest(side, jax_draws.split_sides(n), _check_reseed)


def reseed_beside_memset(n: int) -> Contest:
    """The same bytes, all zero: what no generator can beat."""
    out = torch.zeros(3 * n, dtype=torch.int64)  # two words of key and one of position
    baseline = Side("memset", "memset(address, 0, size)", {
        "memset": machine.memset(), "address": out.data_ptr(), "size": out.nbytes, "kept": out,
    })  # fmt: skip
    return Contest(_reseeder(n, 1), (baseline,), _check_reseed)


# ---------------------------------------------------------------------------- the rows


def _into_memory() -> list[Case]:
    shape, size = (4096, 1024), "4096x1024"
    baselines: dict[str, Baselines] = {
        "loop of NumPy Philox": stream_each.numpy_philox,
        "loop of torch's, generator=g": stream_each.torch_generators,
        "NumPy Philox, one stream": one_stream.numpy_philox,
    }
    rows = []
    for kind in LAWS:
        function = FROM_KEYS[kind].partition("(")[0]
        for label, make in baselines.items():
            build = functools.partial(from_keys, kind, *shape, make)
            rows.append(Case(f"{function}/cpu/{size}", label, None, build))
    return rows


def _one_stream() -> list[Case]:
    baselines: dict[str, Baselines] = {
        "torch": one_stream.torch_default, "NumPy Philox": one_stream.numpy_philox,
    }  # fmt: skip
    rows = []
    for kind, statement in IN_PLACE.items():
        for label, make in baselines.items():
            build = functools.partial(in_place, kind, 10**7, make)
            rows.append(Case(f"{statement.partition('(')[0]}/cpu/1e7", label, None, build))
    return rows


def _banks() -> list[Case]:
    rows = []
    for kind, (n, length, size) in (
        ("uniform", (4096, 1024, "4096x1024")), ("normal", (4096, 1024, "4096x1024")),
        ("randint", (4096, 1024, "4096x1024")),
        ("uniform", (10**6, 4, "1e6x4")), ("normal", (10**6, 4, "1e6x4")),
    ):  # fmt: skip
        build = functools.partial(bank_beside_jax, kind, n, length)
        rows.append(Case(f"bank.{kind}/cpu-all/{size}", "JAX vmap", None, build))
    jax = functools.partial(reseed_beside_jax, 10**6)
    memory = functools.partial(reseed_beside_memset, 10**6)
    return [
        *rows,
        Case("bank.reseed/cpu-all/1e6", "jax.random.split", None, jax),
        Case("bank.reseed/cpu/1e6", "memset", None, memory),
    ]


def cases() -> list[Case]:
    """The rows of this module."""
    return [*_into_memory(), *_one_stream(), *_banks()]
