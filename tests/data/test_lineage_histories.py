"""Lineage over random histories, against a log that is kept sample by sample."""

import collections
import hashlib
import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from helpers import vectors
from helpers.histories import Job, as_tuples, chosen_samples
from helpers.inside import (
    Entry,
    History,
    Permutation,
    ShuffleSpec,
    StepLayout,
    permutation,
    to_dict,
)
from helpers.real_histories import RealJob

from fastseed.data import Lineage

# All histories take minutes: FASTSEED_SCALE=1. Otherwise a part of them.
PART = 1 if os.environ.get("FASTSEED_SCALE") == "1" else 10


def vectors_of(name):
    lines = (vectors.DATA / f"{name}.txt").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


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
    lineage = Lineage.load(json.loads(json.dumps(to_dict(job.history))))
    assert lineage.history == job.history
    epochs = range(job.epochs)
    steps = {(e, t) for e in epochs for s in job.history.spans(e) for t in range(s.first, s.last)}
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
            assert SPECIFIED["at"](to_dict(job.history), *step) == by_step[step], (seed, step)
        for sample in samples[:: max(1, len(samples) // 3)].tolist():
            assert SPECIFIED["where"](to_dict(job.history), sample, epochs) == by_sample[sample]
    return job


def check_many(seeds, contracts):
    jobs = [check(seed, contracts).history for seed in seeds]
    part = len(jobs) // 25
    assert sum(bool(journal.skips) for journal in jobs) >= part
    assert sum(bool(journal.quarantines) for journal in jobs) >= part
    assert sum(len(journal.entries) > 1 for journal in jobs) >= 4 * part
    assert contracts or sum(len(journal.orders) > 1 for journal in jobs) >= part // 2


@pytest.mark.costly("30 random jobs, against their logs")
def test_random_histories_are_answered():
    check_many(range(25), contracts=False)
    check_many(range(5), contracts=True)


@pytest.mark.slow
def test_many_random_histories_are_answered():
    check_many(range(5000 // PART), contracts=False)


@pytest.mark.slow
def test_many_random_contracts_are_answered_alike():
    mixtures = [seed for seed in range(5000, 9000) if Job(seed).spec.kind == "mixture"]
    others = sorted(set(range(5000, 9000)) - set(mixtures))
    # a mixture costs a second
    check_many(others[: 950 // PART] + mixtures[: 50 // PART], contracts=True)


@pytest.mark.parametrize("change", ["shares", "turns", "spare"])
def test_a_wrong_answer_is_noticed(change, monkeypatch):
    """Each change is one that a few histories must find."""
    if change == "shares":
        monkeypatch.setattr(StepLayout, "step_size", property(lambda layout: layout.batch_size))
    elif change == "turns":
        monkeypatch.setattr(Permutation, "positions", lambda order, samples: samples)
    else:
        monkeypatch.setattr(permutation, "RESERVE", permutation.RESERVE + 1)
    with pytest.raises((AssertionError, IndexError)):
        check_many(range(200), contracts=False)


def check_real(seed, workers):
    job = RealJob(seed, workers).run()
    lineage = Lineage.load(job.state)
    spans = [span for epoch in range(job.epochs) for span in lineage.history.spans(epoch)]
    points = {(span.epoch, step) for span in spans for step in range(span.first, span.last)}
    assert points == set(job.rows), seed
    for point in points:
        rows = {(v.rank, v.slot, v.row, v.sample, v.occurrence) for v in lineage.at(*point)}
        assert rows == job.rows[point], (seed, point)
    return job


def test_real_loaders_have_what_is_answered():
    for seed in range(5):
        check_real(seed, workers=0)


@pytest.mark.slow
def test_real_histories_with_workers():
    for seed in range(50 // PART):
        check_real(seed, workers=3)


def test_the_program_is_plain_and_short():
    lines = PROGRAM.read_text("utf-8").splitlines()
    assert len(lines) <= 155 and "Apache-2.0 OR BSD-3-Clause" in lines[0]
    used = {word.strip() for line in lines if line.startswith("import")
            for word in line.partition("#")[0].removeprefix("import").split(",")}  # fmt: skip
    assert used <= sys.stdlib_module_names and not any(line.startswith("from") for line in lines)


def test_the_program_has_the_known_answers_of_shuffles():
    permute, key_of = SPECIFIED["permute"], SPECIFIED["stream_key"]
    for text in vectors_of("shuffle"):
        kind, master, task, epoch, name, *rest = text.split(" ")
        n, start, stride, count = map(int, rest[:4])
        contract = {"master_seed": int(master), "task": int(task)}
        key = key_of(contract, int(epoch), name, 5, 0, 0, n)
        positions = range(start, start + count * stride, stride)[: 411 if kind == "digest" else 30]
        found = [permute(key, n, i, kind == "inverse") for i in positions]
        if kind == "digest":
            digest = hashlib.sha256(np.array(found, "<i8").tobytes()).hexdigest()
            assert count > 411 or digest == rest[4]
        else:
            assert found == list(map(int, rest[4:]))[: len(found)]


@pytest.mark.slow
def test_the_program_has_the_known_answers_of_mixtures():
    latest: object = None
    for text in vectors_of("mixture"):
        kind, master, task, epoch, name, shuffled, count, *rest = text.split(" ")
        columns, rest = rest[: 4 * int(count)], rest[4 * int(count) :]
        sources = [
            dict(
                zip(("name", "size", "share", "skip"), (part[0], *map(int, part[1:])), strict=True)
            )
            for part in zip(*(columns[k::4] for k in range(4)), strict=True)
        ]
        spec = {"name": name, "sources": sources, "shuffled": shuffled == "1"}
        contract = {"master_seed": int(master), "task": int(task)}
        if text.split(" ")[1:8] != latest:
            latest, order = text.split(" ")[1:8], SPECIFIED["Mixture"](contract, int(epoch), spec)
        ends = list(itertools.accumulate((s["size"] for s in sources), initial=0))
        if kind == "at":
            answers = [tuple(map(int, part.split("/"))) for part in rest[2:]]
            found = [order.entry(int(rest[0]) + k) for k in range(len(answers))]
            assert found == [(ends[s] + i, times) for s, i, times in answers]
        else:
            s, first, *places = map(int, (rest[0], rest[1], *rest[3:]))
            turn = first + sources[s]["skip"]
            times, i = divmod(turn, sources[s]["size"])
            sample = ends[s] + order.permuted(sources[s], times, i)
            assert (places[0], times) in order.places(sample, 2100)


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        (("version",), 2, ValueError),
        (("derivation",), 2, ValueError),
        (("orders", 0, "kind"), "other", KeyError),
    ],
)
def test_the_program_refuses_what_it_does_not_know(path, value, error):
    contract = to_dict(Job(3).run().history)
    contract["entries"] = [{**entry, "order": 0} for entry in contract["entries"]]
    part = contract
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    for question in ("at", "where"):
        with pytest.raises(error):
            SPECIFIED[question](contract, 0, 0 if question == "at" else range(1))


def test_the_program_has_no_visits_of_samples_that_do_not_exist():
    order, entry = ShuffleSpec("shuffle", 20), Entry(0, 0, 0, 0, 1, 4, 0, 0, 0)
    contract = to_dict(History(42, 1, (order,), (entry,)))
    counts = [len(SPECIFIED["where"](contract, i, range(2))) for i in (-1, 0, 19, 20, 10**9)]
    assert counts == [0, 2, 2, 0, 0]


def test_the_program_runs_from_the_command_line(tmp_path):
    job = Job(3).run()
    Lineage(job.history).save(tmp_path / "contract.json")

    def run(*arguments):
        command = [sys.executable, PROGRAM, tmp_path / "contract.json", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    first = job.log[0]
    assert str(first) in run("at", *first[:2]) and str(first) in run("where", first[6], 0, 0)
