"""Seeds of one rollout and of a million, beside what projects write by hand."""

from __future__ import annotations

import functools
import hashlib
from unittest import mock

import numpy as np

import fastseed
from fastseed.rollouts import identity, seed, seeds

from ..case import Case, Contest, Side, expect

MASTER, STEP, SAMPLES = 42, 59, 16
PROMPT = "What is 7 * 8?"


def by_prompts(prompts: int) -> Contest:
    """Prompts with identities of 64 bits, 16 samples of each."""
    identities = np.random.default_rng(0).integers(0, 2**63, prompts, np.uint64)
    names = {"seeds": seeds, "prompts": identities, "samples": SAMPLES}
    call = f"seeds({STEP}, prompts, samples, master_seed={MASTER})"
    side = Side("rollouts.seeds", call, names)
    loop = f"[hash(({MASTER}, {STEP}, p, k)) for p in prompts for k in range(samples)]"
    baseline = Side("hash of tuples, loop", loop, {**names, "prompts": identities.tolist()})

    def check(contest: Contest) -> None:
        found = contest.fastseed.run()
        expect(found.shape == (prompts, SAMPLES), "a seed for each rollout")
        expect(len(np.unique(found)) == found.size, "different seeds")
        seeder = fastseed.Seeder(MASTER, 1, 0)
        for p, k in ((0, 0), (prompts // 2, 7), (prompts - 1, SAMPLES - 1)):
            where = {"task": 0, "step": STEP, "rank": 0, "worker": k, "index": int(identities[p])}
            expect(found[p, k] == seeder.derive_seed("rollout", **where) % 2**63, "the seed")
        expect(len(contest.baselines[0].run()) == found.size, "a hash for each rollout")

    return Contest(side, (baseline,), check)


def by_arrays(n: int) -> Contest:
    """Rollouts in flat arrays: prompts that repeat, samples and turns, in any order."""
    numbers = np.random.default_rng(0)
    where, samples = divmod(numbers.permutation(n), SAMPLES)
    prompts, turns = numbers.integers(0, 2**63, -(-n // SAMPLES))[where], numbers.integers(0, 4, n)
    names = {"seeds": seeds, "prompts": prompts, "samples": samples, "turns": turns}
    call = f"seeds({STEP}, prompts, samples, turns, master_seed={MASTER})"
    side = Side("rollouts.seeds", call, names)
    lists = {name: names[name].tolist() for name in ("prompts", "samples", "turns")}
    loop = f"[hash(({MASTER}, {STEP}, p, k, t)) for p, k, t in zip(prompts, samples, turns)]"
    baseline = Side("hash of tuples, loop", loop, lists)

    def check(contest: Contest) -> None:
        found = contest.fastseed.run()
        expect(found.shape == (n,), "a seed for each rollout")
        for i in (0, n // 2, n - 1):
            at = int(prompts[i]), int(samples[i])
            one = seed(STEP, *at, turn=int(turns[i]), master_seed=MASTER)
            expect(found[i] == one, "the seed of one rollout")
        expect(len(contest.baselines[0].run()) == n, "a hash for each rollout")

    return Contest(side, (baseline,), check)


def of_one(native: bool) -> Contest:
    """The seed of one rollout, with the native code and in plain Python."""
    call = f"seed({STEP}, {PROMPT!r}, 7, master_seed={MASTER})"
    hashed = f"f'{MASTER}:{STEP}:{PROMPT}:7'.encode()"
    by_hand = f"int.from_bytes(sha256({hashed}).digest()[:8], 'little') >> 1"
    side = Side("rollouts.seed", call, {"seed": seed})
    baseline = Side("SHA-256 of a text", by_hand, {"sha256": hashlib.sha256})

    def check(contest: Contest) -> None:
        expected = seeds(STEP, [PROMPT], [7], master_seed=MASTER)[0]
        expect(contest.fastseed.run() == expected, "the seed of many")
        expect(0 <= contest.baselines[0].run() < 2**63, "a seed")

    context = mock.patch.object(identity, "_native", identity._native if native else lambda: None)
    return Contest(side, (baseline,), check, context=lambda: context)


def cases() -> list[Case]:
    """The rows of this module."""
    label = "hash of tuples, loop"
    return [
        Case("rollouts.seeds/cpu/62500x16", label, 100, functools.partial(by_prompts, 62_500)),
        Case("rollouts.seeds/cpu/64x16", label, None, functools.partial(by_prompts, 64)),
        Case("rollouts.seeds/cpu/1e6", label, 50, functools.partial(by_arrays, 1_000_000)),
        Case("rollouts.seed/cpu/1", "SHA-256 of a text", None, functools.partial(of_one, True)),
        Case(
            "rollouts.seed/cpu-python/1",
            "SHA-256 of a text",
            None,
            functools.partial(of_one, False),
        ),
    ]
