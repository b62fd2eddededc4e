"""Many CPU generators at once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

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


@functools.lru_cache(maxsize=1)
def _generators(n: int) -> list[torch.Generator]:
    return [torch.Generator() for _ in range(n)]


def _seeds(n: int) -> list[int]:
    """64-bit seeds, of which torch uses 32 bits."""
    return np.random.Generator(np.random.PCG64(1)).integers(0, 2**63, size=n).tolist()


def _loop(generators: list[torch.Generator]) -> Side:
    names = {"generators": generators, "seeds": _seeds(len(generators))}
    return Side("loop", LOOP, names)


def _need(threads: int) -> None:
    if machine.cores() < threads:
        raise Unavailable(f"there are fewer than {threads} cores")


def _check_reseed(contest: Contest) -> None:
    """Every member's seed, and the whole state of some."""
    pool = contest.fastseed.names["pool"]
    epoch = next(contest.fastseed.names["epochs"])
    contest.fastseed.run(epochs=iter([epoch]))
    scope = scalar.scope_key(MASTER, 1, epoch, 0)
    name = scalar.name_key(scope, scalar.name_words(NAME))
    keys = philox.derive_keys(name, 0, 0, 0, len(pool))
    kept = np.array([generator.initial_seed() for generator in pool], np.uint64)
    expect(np.array_equal(kept, keys[:, 0]), "the members' seeds")
    for i in np.linspace(0, len(pool) - 1, SAMPLE).astype(int).tolist():
        state = pool[i].get_state().numpy().tobytes()
        words = np.frombuffer(state, np.uint64, 624, 24).astype(np.uint32)
        key = int(keys[i, 0]) | int(keys[i, 1]) << 64
        expect(np.array_equal(words, derive.mt19937_state(key)), f"the words of member {i}")


def _check_manual_seed(contest: Contest) -> None:
    """Bit-identical states of all members after the pool's call and after the loop."""
    generators = contest.baselines[0].names["generators"]
    for generator in generators:
        generator.manual_seed(0)
    contest.fastseed.run()
    side = [generator.get_state() for generator in generators]
    contest.baselines[0].run()
    for i, (generator, state) in enumerate(zip(generators, side, strict=True)):
        expect(torch.equal(generator.get_state(), state), f"the state of member {i}")


def reseed(n: int, threads: int) -> Contest:
    """A key for each member, against ready-made seeds in a Python loop."""
    _need(threads)
    fastseed.init(MASTER, 1, 0)
    generators = _generators(n)
    names = {"pool": fastseed.GeneratorPool(generators, NAME), "epochs": itertools.count()}
    side = Side("pool.reseed", "pool.reseed(1, next(epochs))", names, threads)
    return Contest(side, (_loop(generators),), _check_reseed)


def reseed_without_generators(n: int) -> Contest:
    """A call of ``set_state`` for each member."""
    made = reseed(n, 1)
    slower = without_generators.side(made.fastseed)
    with without_generators.hidden():
        slower.names["pool"] = fastseed.GeneratorPool(_generators(n), NAME)

    def check(contest: Contest) -> None:
        _check_reseed(contest)
        _check_reseed(Contest(slower, (), _check_reseed))

    return Contest(made.fastseed, (slower,), check)


def manual_seed(n: int, threads: int, convert: Callable[[list[int]], object]) -> Contest:
    """The loop itself, in one call; ``convert`` makes what the seeds are passed as."""
    _need(threads)
    generators = _generators(n)
    names = {"pool": fastseed.GeneratorPool(generators, NAME), "seeds": convert(_seeds(n))}
    side = Side("pool.reseed_from_seeds", "pool.reseed_from_seeds(seeds)", names, threads)
    return Contest(side, (_loop(generators),), _check_manual_seed)


def _as_tensor(seeds: list[int]) -> torch.Tensor:
    return torch.tensor(seeds, dtype=torch.uint64)


def cases() -> list[Case]:
    """The rows of this module."""
    baseline = "loop of manual_seed"
    rows: list[Case] = []
    for device, threads, target in (("cpu", 1, 5), ("cpu-2t", 2, 9)):
        build = functools.partial(reseed, COUNT, threads)
        rows.append(Case(f"pool.reseed/{device}/1e4", baseline, target, build))
    build = functools.partial(reseed_without_generators, COUNT)
    rows.append(Case("pool.reseed/cpu/1e4", without_generators.LABEL, None, build))
    for device, threads, target in (("cpu", 1, 3.7), ("cpu-2t", 2, 6.5)):
        build = functools.partial(manual_seed, COUNT, threads, _as_tensor)
        rows.append(Case(f"pool.reseed_from_seeds/{device}/1e4", baseline, target, build))
    build = functools.partial(manual_seed, COUNT, 1, list)
    rows.append(Case("pool.reseed_from_seeds_of_a_list/cpu/1e4", baseline, None, build))
    return rows
