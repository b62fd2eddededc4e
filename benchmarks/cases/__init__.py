"""All cases, in the order of the table."""

from __future__ import annotations

from ..case import Case
from . import (
    checkpoint,
    digest,
    draws,
    dropout,
    elastic,
    exact_sums,
    initialization,
    keyed,
    ledger,
    lineage,
    loaders,
    perturb,
    pool,
    reseed,
    rollouts,
    sampler,
    samples,
    seeds,
    small_calls,
    tokens,
)


def all_cases() -> list[Case]:
    """Every case; building one is cheap until its ``build`` is called."""
    return [
        *(*reseed.cases(), *seeds.cases(), *pool.cases(), *draws.cases(), *small_calls.cases()),
        *(*checkpoint.cases(), *samples.cases(), *sampler.cases(), *digest.cases()),
        *(*rollouts.cases(), *ledger.cases(), *tokens.cases(), *dropout.cases(), *loaders.cases()),
        *(*keyed.cases(), *initialization.cases(), *exact_sums.cases()),
        *(*elastic.cases(), *lineage.cases(), *perturb.cases()),
    ]
