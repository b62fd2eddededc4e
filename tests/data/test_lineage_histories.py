"""Lineage over random histories, against a log that is kept sample by sample."""

from __future__ import annotations

import collections
import json

import pytest
from helpers import vectors
from helpers.histories import Job, as_tuples, chosen_samples

from fastseed.data.lineage import Lineage, read

SPECIFIED: dict = {"__name__": "data_order"}
PROGRAM = vectors.DATA.parents[1] / "docs" / "spec" / "data_order.py"
exec(compile(PROGRAM.read_text("utf-8"), PROGRAM, "exec"), SPECIFIED)


def check(seed, contracts=False):
    job = Job(seed).run()
    by_step = collections.defaultdict(list)
    by_sample = collections.defaultdict(list)
    for visit in job.log:
        by_step[visit[:2]].append(visit)
        by_sample[visit[6]].append(visit)
    lineage = read(json.loads(json.dumps(job.journal.to_dict())))
    assert lineage.journal == job.journal
    epochs = range(job.epochs)
    steps = {(e, t) for e in epochs for s in job.journal.spans(e) for t in range(s.first, s.last)}
    assert steps == set(by_step), seed
    for step in steps:
        assert as_tuples(lineage.at(*step)) == by_step[step], (seed, step)
    samples = chosen_samples(job)
    found = collections.defaultdict(list)
    for visit in as_tuples(lineage.where(samples, epochs=epochs)):
        found[visit[6]].append(visit)
    assert all(found[s] == by_sample[s] for s in samples.tolist()), seed
    if contracts:
        for step in sorted(steps)[:: max(1, len(steps) // 4)]:
            assert SPECIFIED["at"](job.journal.to_dict(), *step) == by_step[step], (seed, step)
        for sample in samples[:: max(1, len(samples) // 3)].tolist():
            assert SPECIFIED["where"](job.journal.to_dict(), sample, epochs) == by_sample[sample]
    return job


def test_random_histories_are_answered():
    jobs = [check(seed) for seed in range(250)]
    changes = [job.journal for job in jobs]
    assert sum(bool(journal.skips) for journal in changes) > 20
    assert sum(bool(journal.quarantines) for journal in changes) > 20
    assert sum(len(journal.entries) > 1 for journal in changes) > 80
    assert sum(len(journal.orders) > 1 for journal in changes) > 10
