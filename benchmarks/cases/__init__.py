"""All cases, in the order of the table: a module a subject, and the kernels of a GPU."""

from __future__ import annotations

import itertools

from ..case import Case
from ..gpu.case import as_case
from ..gpu.cases import kernels
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

SUBJECTS = (
    reseed, seeds, pool, draws, small_calls, sampler, loaders, samples, checkpoint, digest,
    rollouts, ledger, tokens, dropout, keyed, initialization, perturb, exact_sums, elastic,
)  # fmt: skip


def all_cases() -> list[Case]:
    """Every case; building one is cheap until its ``build`` is called."""
    subjects = itertools.chain.from_iterable(subject.cases() for subject in SUBJECTS)
    return [*map(as_case, kernels()), *subjects]
