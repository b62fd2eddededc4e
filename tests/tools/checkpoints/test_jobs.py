"""Journals in files: found in any checkpoint without running its code, counted, compared."""

import collections
import copy
import dataclasses
import json
import pickle
import random

import pytest
import torch
import torch.distributed.checkpoint as dcp
from helpers.histories import Job
from helpers.loaders import same
from torch.utils.data import DataLoader, RandomSampler

import fastseed
from fastseed.data import Lineage
from fastseed.tools import checkpoints


def read_lineage(path, task=None):
    return checkpoints.inspect(path).lineage(task)


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def loop(n=40, batch=4, task=1, slots=None, **more):
    more = {"shuffle": True, "collate_fn": same, **more}
    return fastseed.data.steps(DataLoader(range(n), batch, **more), 2, task=task, slots=slots)


def after(count, **more):
    made = loop(**more)
    steps = iter(made)
    for _ in range(count):
        next(steps)
    return made


def test_files_of_every_kind_have_the_journal(tmp_path):
    made = after(7)
    state, expected = made.state_dict(), made.lineage().history
    made.lineage().save(tmp_path / "contract.json")
    (tmp_path / "state.json").write_text(json.dumps(state))
    torch.save({"model": torch.zeros(3), "deep": [{"steps": state}]}, tmp_path / "torch.pt")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps({"steps": state}))
    dcp.save({"model": {"w": torch.zeros(3)}, "steps": state}, checkpoint_id=tmp_path / "dcp")
    for name in ("contract.json", "state.json", "torch.pt", "plain.pkl", "dcp"):
        assert read_lineage(tmp_path / name).history == expected, name


def test_a_folder_of_files_as_a_trainer_writes_it(tmp_path):
    torch.save({"cpu": torch.get_rng_state()}, tmp_path / "rng_state.pth")
    (tmp_path / "trainer_state.json").write_text('{"global_step": 7, "loss": NaN}')
    (tmp_path / "optimizer.pt").write_bytes(b"PK damaged")
    for rank in range(2):
        torch.save(after(7).state_dict(), tmp_path / f"steps-{rank}.pt")
    assert read_lineage(tmp_path).history == after(7).lineage().history


def test_several_loops_are_chosen_by_task(tmp_path):
    first, second = after(3), after(5, task=2)
    torch.save({"a": first.state_dict(), "b": second.state_dict()}, tmp_path / "two.pt")
    with pytest.raises(ValueError, match=r"two\.pt: a \(task 1\), two\.pt: b \(task 2\)"):
        read_lineage(tmp_path / "two.pt")
    assert read_lineage(tmp_path / "two.pt", task=2).history == second.lineage().history
    with pytest.raises(ValueError, match=r"journal of fastseed.data.steps of task 3.*\[1, 2\]"):
        read_lineage(tmp_path / "two.pt", task=3)


def test_files_without_a_journal_and_damaged_ones_are_refused(tmp_path):
    text = after(3).state_dict()["journal"]
    (tmp_path / "none.pt").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "cut.json").write_text(text[:-9])
    (tmp_path / "other.json").write_text(text.replace('"version":1', '"version":9'))
    held = {"good": text, "bad": {"journal": text.replace('"task":1', '"task":-1')}}
    (tmp_path / "damaged.pkl").write_bytes(pickle.dumps(held))
    for name, problem in (
        ("none.pt", "it has none"),
        ("cut.json", "it must be a whole JSON document"),
        ("other.json", "must be 1, as of this version"),
        ("damaged.pkl", r"damaged.pkl: bad: .*\['sha256'\] must be the digest"),
    ):
        with pytest.raises(ValueError, match=rf"checkpoints.inspect: path must be .*{problem}"):
            read_lineage(tmp_path / name)


def test_locate_counts_the_steps_of_random_histories():
    for seed in range(60):
        made = Job(seed).run()
        lineage = Lineage(made.history)
        whole = dataclasses.replace(made.history, skips=())
        counts = [max((s.last for s in whole.spans(e)), default=0) for e in range(made.epochs)]
        points = [(e, step) for e, count in enumerate(counts) for step in range(count)]
        assert {visit[:2] for visit in made.log} <= set(points)
        found = [checkpoints.locate(lineage, number) for number in range(len(points))]
        assert found == points, seed


def test_locate_refuses_steps_that_do_not_exist():
    lineage = loop().lineage()
    assert checkpoints.locate(lineage, 10 * 2**32 - 1) == (2**32 - 1, 9)
    for number, error in ((10 * 2**32, ValueError), (-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match=r"tools\.checkpoints\.locate: number must be"):
            checkpoints.locate(lineage, number)


def branches(seed):
    """Two jobs that continue differently after the same first steps."""
    a = Job(seed)
    a.attempt(8)
    b = copy.deepcopy(a)
    b.random = random.Random(seed + 1)
    for one in (a, b):
        one.attempt(None)
    return a, b


def logged(made):
    found = collections.defaultdict(collections.Counter)
    for visit in made.log:
        found[visit[:2]][visit[6:]] += 1
    return found


def test_diff_equals_a_comparison_of_the_logs():
    verdicts = collections.Counter()
    for seed in range(120):
        pair = branches(seed)
        a, b = map(logged, pair)
        other = sorted(point for point in a.keys() | b.keys() if a.get(point) != b.get(point))
        missing = sum((a[p] - b[p]).total() for p in other)
        found = checkpoints.compare_jobs(*(Lineage(one.history) for one in pair))
        assert found.first == (other[0] if other else None), seed
        assert (found.differing, found.missing) == (len(other), missing), seed
        assert found.steps == len({p for x in (a, b) for p, held in x.items() if held}), seed
        assert found.samples == len(pair[0].log) and found.epochs == pair[0].epochs
        assert bool(found) == (not other) and bool(found.why) == bool(other), (seed, found)
        verdicts[bool(found)] += 1
    assert min(verdicts[True], verdicts[False]) > 10


def test_diff_of_jobs_that_claim_too_much_is_refused():
    def claimed(epochs, **more):
        history = loop(**more).lineage().history
        return Lineage(dataclasses.replace(history, epoch=epochs))

    found = checkpoints.compare_jobs(claimed(2000), claimed(2000))
    assert found and (found.epochs, found.steps) == (2000, 20_000)
    assert checkpoints.compare_jobs(claimed(3), claimed(2, batch=5)).steps == 30
    for epochs in (2**31, 2**22 // 10 + 1):
        rule = f"compare_jobs: a and b must be jobs with at most 4194304 steps, got {10 * epochs}"
        with pytest.raises(ValueError, match=rule):
            checkpoints.compare_jobs(claimed(epochs), claimed(epochs, batch=5))


def test_diff_says_why():
    def why(b, a=None):
        return checkpoints.compare_jobs((a or loop()).lineage(), b.lineage())

    assert why(loop()) and why(loop()).why == ()
    found = why(loop(batch=5))
    assert found.why == ("batch: 4 on 1 rank(s), 5 on 1 rank(s)",) and found.first == (0, 0)
    assert why(loop(n=41)).why == (
        "order: shuffle 'shuffle' of 40 samples, shuffle 'shuffle' of 41 samples",
    )
    skipped = after(2)
    skipped.skip(0, 4, 5)
    assert why(skipped).why == ("step: exists, skipped",) and why(skipped).first == (0, 4)
    assert (why(skipped).differing, why(skipped).missing, why(skipped).samples) == (2, 8, 40)
    clean = after(2)
    gone = clean.lineage().at(0, 6).sample[:1]
    clean.quarantine(gone)
    found = why(clean)
    assert (found.first, found.differing, found.missing) == ((0, 6), 1, 1)
    assert found.why == ("quarantine: 0 sample(s), 1 sample(s)",)
    other = loop(task=2)
    assert why(other).notes == ("task: 1, 2: keys of samples differ",)


def test_diff_does_not_depend_on_ranks_that_share_a_step():
    a = loop(slots=4).lineage()
    entry = a.history.entries[0]._replace(ranks=3)
    found = checkpoints.compare_jobs(a, Lineage(dataclasses.replace(a.history, entries=(entry,))))
    assert found and found.steps == 3


def test_an_order_that_is_not_known_is_not_called_equal():
    def unknown():
        return loop(shuffle=False, sampler=RandomSampler(range(40))).lineage()

    with pytest.raises(ValueError, match="the order of a job must be a ShuffleSampler"):
        checkpoints.compare_jobs(unknown(), unknown())
