"""Seeds of a million rollouts, beside what projects write by hand."""

from __future__ import annotations

import functools

import numpy as np

import fastseed
from fastseed.rollouts import table

from ..case import Case, Contest, Side, expect

MASTER, STEP, SAMPLES = 42, 59, 16


def by_prompts(prompts: int) -> Contest:
    """Prompts with identities of 64 bits, 16 samples of each."""
    identities = np.random.default_rng(0).integers(0, 2**63, prompts, np.uint64)
    names = {"table": table, "prompts": identities, "samples": SAMPLES}
    call = f"table({STEP}, prompts, samples, master_seed={MASTER}).array"
    side = Side("rollouts.table", call, names)
    loop = f"[hash(({MASTER}, {STEP}, p, k)) for p in prompts for k in range(samples)]"
    baseline = Side("hash of tuples, loop", loop, {**names, "prompts": identities.tolist()})

    def check(contest: Contest) -> None:
        seeds = contest.fastseed.run()
        expect(seeds.shape == (prompts, SAMPLES), "a seed for each rollout")
        expect(len(np.unique(seeds)) == seeds.size, "different seeds")
        seeder = fastseed.Seeder(MASTER, 1, 0)
        for p, k in ((0, 0), (prompts // 2, 7), (prompts - 1, SAMPLES - 1)):
            where = {"task": 0, "step": STEP, "rank": 0, "worker": k, "index": int(identities[p])}
            expect(seeds[p, k] == seeder.derive_seed("rollout", **where) % 2**63, "the seed")
        expect(len(contest.baselines[0].run()) == seeds.size, "a hash for each rollout")

    return Contest(side, (baseline,), check)


def cases() -> list[Case]:
    """The rows of this module."""
    label = "hash of tuples, loop"
    return [
        Case("rollouts.table/cpu/1e6", label, 100, functools.partial(by_prompts, 62_500)),
        Case("rollouts.table/cpu/1024", label, None, functools.partial(by_prompts, 64)),
    ]
