"""Many generators at once."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import torch

import fastseed
from fastseed._backend import derive
from fastseed._backend.reference import philox, scalar

from .. import machine
from ..baselines import without_generators
from ..case import Case, Contest, Side, Unavailable, expect

MASTER, NAME, COUNT = 42, "bench", 10_000
SAMPLE = 32  # members whose 624 words are compared one by one with the reference's

LOOP = "for generator, seed in zip(generators, seeds): generator.manual_seed(seed)"
LABEL = "loop of manual_seed"


def _generators(n: int, device: str) -> list[torch.Generator]:
    return [torch.Generator(device) for _ in range(n)]


def _seeds(n: int) -> list[int]:
    """64-bit seeds, of which torch uses 32 bits."""
    return np.random.Generator(np.random.PCG64(1)).integers(0, 2**63, size=n).tolist()


def _loop(generators: list[torch.Generator]) -> list[Side]:
    return [Side("loop", LOOP, {"generators": generators, "seeds": _seeds(len(generators))})]


def _need(threads: int) -> None:
    if machine.cores() < threads:
        raise Unavailable(f"there are fewer than {threads} cores")


def _check_reseed(side: Side) -> None:
    """Every member's seed, and on the CPU the whole state of some."""
    if side.label == "loop":
        side.run()
        return
    pool, epoch = side.names["pool"], next(side.names["epochs"])
    side.run(epochs=iter([epoch]))
    scope = scalar.scope_key(MASTER, 1, epoch, 0)
    name = scalar.name_key(scope, scalar.name_words(side.names["name"]))
    keys = philox.derive_keys(name, 0, 0, 0, len(pool))
    kept = np.array([generator.initial_seed() for generator in pool], np.uint64)
    expect(np.array_equal(kept, keys[:, 0]), "the members' seeds")
    for i in np.linspace(0, len(pool) - 1, SAMPLE).astype(int).tolist():
        if pool[i].device.type == "cpu":
            state = pool[i].get_state().numpy().tobytes()
            words = np.frombuffer(state, np.uint64, 624, 24).astype(np.uint32)
            key = int(keys[i, 0]) | int(keys[i, 1]) << 64
            expect(np.array_equal(words, derive.mt19937_state(key)), f"the words of member {i}")


def reseed(n: int, threads: int, device: str) -> Contest:
    """A key for each member, against ready-made seeds in a Python loop; and without the module,
    where ``set_state`` is called for each member."""
    _need(threads)
    fastseed.init(MASTER, 1, 0)
    generators = _generators(n, device)

    def ours(name: str = NAME) -> Side:
        pool = fastseed.GeneratorPool(generators, name)
        names = {"pool": pool, "name": name, "epochs": itertools.count()}
        return Side("pool.reseed", "pool.reseed(1, next(epochs))", names, threads)

    def as_a_wheel() -> list[Side]:
        with without_generators.hidden():
            slower = ours(f"{NAME} in Python")
        return [without_generators.side(slower)]

    beside = {LABEL: lambda: _loop(generators), without_generators.LABEL: as_a_wheel}
    if threads > 1:
        del beside[without_generators.LABEL]
    return Contest(ours(), _check_reseed, beside, _check_reseed)


def reseed_from_seeds(n: int, device: str) -> Contest:
    """The loop itself, in one call: states of all members are those of the loop."""
    generators = _generators(n, device)
    seeds = torch.tensor(_seeds(n), dtype=torch.uint64)
    names = {"pool": fastseed.GeneratorPool(generators, NAME), "seeds": seeds}
    side = Side("pool.reseed_from_seeds", "pool.reseed_from_seeds(seeds)", names)

    def check(made: Side) -> None:
        for generator in generators:
            generator.manual_seed(0)
        made.run()
        states = [generator.get_state() for generator in generators]
        _loop(generators)[0].run()
        for i, (generator, state) in enumerate(zip(generators, states, strict=True)):
            expect(torch.equal(generator.get_state(), state), f"the state of member {i}")

    return Contest(side, check, {LABEL: lambda: _loop(generators)})


def cases() -> list[Case]:
    """The rows of this module."""
    one, two = (functools.partial(reseed, COUNT, threads) for threads in (1, 2))
    return [
        Case("pool.reseed", "1e4", {LABEL: 5, without_generators.LABEL: None}, one,
             devices=("cpu", "cuda"), headline=True),
        Case("pool.reseed", "1e4", {LABEL: 9}, two, threads="2t"),
        Case("pool.reseed_from_seeds", "1e4", {LABEL: 3.7},
             functools.partial(reseed_from_seeds, COUNT)),
    ]  # fmt: skip
