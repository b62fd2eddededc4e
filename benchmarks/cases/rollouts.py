"""Seeds of one rollout and of a million, beside what projects write by hand."""

from __future__ import annotations

import functools
import hashlib

import numpy as np

import fastseed
from fastseed.rollouts import seed, seeds

from ..case import Case, Contest, Side, expect

MASTER, STEP, SAMPLES = 42, 59, 16
PROMPT = "What is 7 * 8?"


LABEL = "hash of tuples, loop"


def by_prompts(prompts: int, _: str) -> Contest:
    """Prompts with identities of 64 bits, 16 samples of each."""
    identities = np.random.default_rng(0).integers(0, 2**63, prompts, np.uint64)
    names = {"seeds": seeds, "prompts": identities, "samples": SAMPLES}
    call = f"seeds({STEP}, prompts, samples, master_seed={MASTER})"
    loop = f"[hash(({MASTER}, {STEP}, p, k)) for p in prompts for k in range(samples)]"
    theirs = Side("hash", loop, {**names, "prompts": identities.tolist()})

    def check(side: Side) -> None:
        found = side.run()
        expect(found.shape == (prompts, SAMPLES), "a seed for each rollout")
        expect(len(np.unique(found)) == found.size, "different seeds")
        seeder = fastseed.Seeder(MASTER, 1, 0)
        for p, k in ((0, 0), (prompts // 2, 7), (prompts - 1, SAMPLES - 1)):
            where = {"task": 0, "step": STEP, "rank": 0, "worker": k, "index": int(identities[p])}
            expect(found[p, k] == seeder.derive_seed("rollout", **where) % 2**63, "the seed")

    return Contest(Side("rollouts.seeds", call, names), check, {LABEL: lambda: [theirs]})


def of_one(_: str) -> Contest:
    """The seed of one rollout."""
    call = f"seed({STEP}, {PROMPT!r}, 7, master_seed={MASTER})"
    hashed = f"f'{MASTER}:{STEP}:{PROMPT}:7'.encode()"
    by_hand = f"int.from_bytes(sha256({hashed}).digest()[:8], 'little') >> 1"
    theirs = Side("SHA-256", by_hand, {"sha256": hashlib.sha256})

    def check(side: Side) -> None:
        expected = seeds(STEP, [PROMPT], [7], master_seed=MASTER)[0]
        expect(side.run() == expected, "the seed of many")

    side = Side("rollouts.seed", call, {"seed": seed})
    return Contest(side, check, {"SHA-256 of a text": lambda: [theirs]})


def cases() -> list[Case]:
    """The rows of this module."""
    return [
        Case("rollouts.seeds", "62500x16", {LABEL: None}, functools.partial(by_prompts, 62_500)),
        Case("rollouts.seed", "1", {"SHA-256 of a text": None}, of_one),
    ]
