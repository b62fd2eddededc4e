"""Lineage of a loop over steps: at, where, quarantine, skip, and what resumes."""

import itertools
import json
import pickle
import runpy
import tracemalloc

import numpy as np
import pytest
import torch
import torch.distributed as dist
from helpers import vectors
from helpers.inside import derivation_streams, derive, to_dict
from helpers.loaders import Indexed, Slots, dealt, draw, same
from helpers.ranks import ranks
from torch.utils.data import DataLoader

import fastseed
from fastseed.data import Lineage, MixtureSampler, per_sample, steps

EPOCHS = 2


PROGRAM = vectors.DATA.parents[1] / "docs" / "spec" / "data_order.py"
SPECIFIED = runpy.run_path(str(PROGRAM))


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


class Noise(Indexed):
    """Sample i and a number of its generator."""

    def __getitem__(self, i, generator):
        return int(i), int(generator.integers(2**62))


def make(n=40, batch=4, *, epochs=EPOCHS, data=None, **more):
    data = per_sample(Noise(n), "numpy") if data is None else data
    more = {"shuffle": True, "collate_fn": same, **more}
    return steps(DataLoader(data, batch, **more), epochs, task=1)


def run(loop, stop=None):
    return {(e, s): (batch, draw()) for e, s, batch in itertools.islice(loop, stop)}


def samples(batches):
    return {point: [i for i, _ in batch] for point, (batch, _) in batches.items()}


def test_at_and_where_answer_before_and_after_now():
    loop = make(n=10)
    expected = samples(run(make(n=10)))
    run(loop, 2)
    lineage = loop.lineage()
    assert (lineage.history.epoch, lineage.history.step) == (0, 2)
    for (epoch, step), batch in expected.items():
        found = lineage.at(epoch, step)
        assert found.sample.tolist() == batch and found.row.tolist() == list(range(len(batch)))
        assert found.epoch.tolist() == [epoch] * len(batch)
    for sample in range(10):
        found = [(v.epoch, v.step, v.row) for v in lineage.where(sample, epochs=range(2))]
        assert found == [(*p, b.index(sample)) for p, b in expected.items() if sample in b]
        assert len(lineage.where(sample)) == 1
    assert len(lineage.where(range(10), epochs=range(5, 8))) == 30
    assert len(lineage.where([])) == 0
    assert list(lineage.where(torch.tensor(7))) == list(lineage.where(np.array(7)))
    assert list(lineage.where(torch.tensor(7))) == list(lineage.where(7))


def test_a_step_that_is_larger_than_the_dataset_has_samples_again():
    class Counted(Indexed):
        def __getitem__(self, i):
            return int(i), getattr(i, "occurrence", 0)

    loop = steps(DataLoader(Counted(3), 4, shuffle=True, collate_fn=same), 1, slots=2)
    taken = [sample for _, _, batches in loop for batch in batches for sample in batch]
    assert [(v.sample, v.occurrence) for v in loop.lineage().at(0, 0)] == taken
    assert [k for _, k in taken] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_memory_does_not_grow_with_the_dataset():
    def peak(n):
        loop = steps(DataLoader(range(n), 512, shuffle=True), 1)
        next(iter(loop))
        lineage = loop.lineage()
        tracemalloc.start()
        lineage.at(0, 3), lineage.where(range(99), epochs=range(99))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    small, large = peak(10**6), peak(10**12)
    assert large < 1.2 * small < 8 * 10**6, "which a list of 10**6 indices would need"


@pytest.mark.parametrize("assignment", ["blocks", "deal"])
def test_ranks_slots_and_rows(assignment):
    fastseed.init(42, rank=1, world_size=3)
    loader = DataLoader(Indexed(20), 2, shuffle=True, collate_fn=same)
    loop = steps(loader, 1, slots=Slots(4, assignment))
    taken = [[i for i, *_ in batch] for _, _, batches in loop for batch in batches]
    at = [visits[visits["rank"] == 1] for visits in map(loop.lineage().at, [0] * 3, range(3))]
    assert [v["sample"].tolist() for v in at] == taken and {v.slot for v in at[0]} == {1}
    assert [tuple(v)[2:5] for v in at[2]] == [(1, 1, 0), (1, 1, 1)]
    everywhere = loop.lineage().at(0, 2)
    assert everywhere.position.tolist() == list(range(16, 24))
    dealt = [0, 1, 2, 2] if assignment == "blocks" else [0, 1, 2, 0]
    assert everywhere["rank"].tolist() == [rank for rank in dealt for _ in range(2)]
    journal = json.loads(loop.state_dict()["journal"])["entries"][0]
    assert journal.get("assignment", "deal") == assignment  # as in a journal without the field
    assert everywhere.occurrence.tolist() == [0] * 4 + [1] * 4


def test_keys_are_those_of_the_samples():
    loop = make(n=10)
    (batch, _), *_ = run(loop, 1).values()
    lineage = loop.lineage()
    visits = lineage.at(0, 0)
    keys = lineage.keys(visits)
    assert keys.shape == (4, 2) and keys.dtype == np.uint64
    for (_, number), (lo, hi) in zip(batch, keys.tolist(), strict=True):
        assert int(np.random.Generator(np.random.PCG64(lo | hi << 64)).integers(2**62)) == number
    stream = derivation_streams.sample_stream(derive.scope_key(42, 1, 0, 0), "numpy", batch[2][0])
    low, high = map(int, lineage.keys(visits, "numpy")[2])
    assert stream.key() == low | high << 64


def test_sources_of_a_mixture():
    sampler = MixtureSampler({"web": 12, "code": 5}, {"web": 1, "code": 1}, n=24)
    loop = make(n=17, sampler=sampler, shuffle=None)
    expected = samples(run(loop))
    lineage = loop.lineage()
    named = lineage.at(1, 2)
    pairs = zip(named.source, named.index, strict=True)
    assert [i + (12 if name == "code" else 0) for name, i in pairs] == expected[1, 2]
    found = lineage.where(3, "code", epochs=range(2))
    times = [batch.count(15) for (epoch, _), batch in expected.items()]
    assert len(found) == sum(times) > 3 and set(found.sample.tolist()) == {15}
    assert found.occurrence.tolist()[:2] == [0, 1]
    with pytest.raises(ValueError, match=r"Lineage\.where: source must be one of 'web', 'code'"):
        lineage.where(3, "books")
    with pytest.raises(ValueError, match=r"where: sample must be in \[0, 4\], got 5"):
        lineage.where(5, "code")


# ---------------------------------------------------------------- quarantine and skip


def test_quarantine_leaves_all_other_samples_where_they_are():
    whole = run(make(), 20)
    loop, gone = make(), {samples(whole)[0, 6][1], samples(whole)[0, 2][0], 3}
    seen = run(loop, 5)
    loop.quarantine(gone)
    seen |= run(loop)
    assert samples(seen).keys() == samples(whole).keys()
    changed = 0
    for point, (batch, drawn) in whole.items():
        assert seen[point][1] == drawn
        for old, new in zip(batch, seen[point][0], strict=True):
            if point >= (0, 5) and old[0] in gone:
                assert new[0] not in gone and new not in batch
                changed += 1
            else:
                assert new == old
    numbers = [number for batch, _ in seen.values() for _, number in batch]
    assert 3 <= changed <= 6 and len(set(numbers)) == len(numbers)
    lineage = loop.lineage()
    for point, batch in samples(seen).items():
        assert lineage.at(*point).sample.tolist() == batch
    assert all(v.epoch == 0 and v.step < 5 for v in lineage.where(sorted(gone), epochs=range(9)))


def test_quarantine_inside_the_loop_is_that_between_loops():
    between = make()
    expected = run(between, 5)
    between.quarantine([1, 2])
    expected |= run(between)
    inside, seen = make(), {}
    for count, (epoch, step, batch) in enumerate(inside, 1):
        seen[epoch, step] = batch, draw()
        if count == 5:
            inside.quarantine([2, 1])
    assert seen == expected
    assert json.loads(inside.state_dict()["journal"]) == json.loads(between.state_dict()["journal"])


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_quarantined_job_resumes_on_another_number_of_ranks(drop_last):
    def ranks(world, batch, state=None, stop=None, gone=None):
        shares, states = [], []
        for rank in range(world):
            fastseed.init(42, rank=rank, world_size=world)
            loop = make(n=50, batch=batch, drop_last=drop_last)
            if state is not None:
                loop.load_state_dict(state)
            seen = [batch for batch, _ in run(loop, gone and 2).values()]
            if gone:
                loop.quarantine(gone)
                seen += [batch for batch, _ in run(loop, stop and stop - 2).values()]
            shares.append(seen)
            states.append(loop.state_dict())
        assert all(state == states[0] for state in states)
        return dealt(shares), states[0]

    whole, _ = ranks(1, 6, gone=[4, 8, 15, 16])
    before, state = ranks(1, 6, gone=[4, 8, 15, 16], stop=4)
    after, _ = ranks(3, 2, state)
    both = before + after
    assert both == whole if drop_last else both[:50] == whole[:50]
    assert not {4, 8, 15, 16} & {i for i, _ in both[12:]}


def test_skipped_steps_are_left_out():
    whole = run(make())
    loop = make()
    seen = run(loop, 3)
    loop.skip(0, 4, 6)
    loop.skip(1, 0, 1)
    loop.skip(1, 8, 9)
    state = loop.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    left = {(0, 4), (0, 5), (0, 6), (1, 0), (1, 1), (1, 8), (1, 9)}
    expected = {point: batch for point, batch in whole.items() if point not in left}
    assert seen | run(loop) == expected == seen | run(resumed)
    lineage = resumed.lineage()
    assert len(lineage.at(0, 5)) == 0 and len(lineage.at(0, 7)) == 4
    first = samples(whole)[0, 4][0]
    assert {(v.epoch, v.step) for v in lineage.where(first)} <= {p for p in expected if p[0] == 1}


def test_a_mixture_goes_on_with_other_weights():
    def mixture(weights, **more):
        sizes = {"web": 30, "code": 20}
        sampler = MixtureSampler(sizes, weights, n=40, **more)
        return make(n=50, sampler=sampler, shuffle=None), sampler

    loop, sampler = mixture({"web": 1, "code": 1})
    seen = samples(run(loop, 6))
    state = loop.state_dict()
    other, _ = mixture({"web": 1, "code": 9}, skip=sampler.counts(24, task=1, epoch=0))
    with pytest.raises(ValueError, match=r"must be of order"):
        other.load_state_dict(state)
    other.load_state_dict(state, new_order=True)
    assert (other.epoch, other.step) == (0, 6)
    seen |= samples(run(other))
    assert len({i for (e, _), batch in seen.items() if e == 0 for i in batch[:30]}) > 30
    lineage = Lineage.load(other.state_dict())
    for point, batch in seen.items():
        assert lineage.at(*point).sample.tolist() == batch


# ---------------------------------------------------------------- the journal


def test_the_journal_is_part_of_the_state(tmp_path):
    loop = make(n=10)
    run(loop, 4)
    torch.save(loop.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    lineage = loop.lineage()
    assert (
        Lineage.load(state).history
        == lineage.history
        == Lineage.load(json.loads(state["journal"])).history
    )
    lineage.save(tmp_path / "contract.json")
    assert Lineage.load(tmp_path / "contract.json").history == lineage.history
    assert (tmp_path / "contract.json").stat().st_size < 1000
    resumed = make(n=10)
    resumed.load_state_dict(state)
    run(resumed, 1)
    assert len(resumed.lineage().history.entries) == 1, (
        "an attempt like the one before adds nothing"
    )


def test_epochs_that_were_left_are_not_answered():
    loop = make(n=10)
    run(loop.in_epoch(0), 1)
    run(loop.in_epoch(3))
    lineage = loop.lineage()
    assert [(v.epoch, v.step) for v in lineage.where(range(10), epochs=range(4))][4] == (3, 0)
    with pytest.raises(ValueError, match=r"step must be a step of epoch 0, which has 1 of them"):
        lineage.at(0, 1)
    with pytest.raises(ValueError, match=r"a step of epoch 2, which has 0"):
        lineage.at(2, 0)
    run(loop.in_epoch(1), 2)  # a step back: later ones are done again
    assert len(loop.lineage().where(range(10), epochs=range(4))) == 34


def test_another_init_is_another_job():
    """Samples that were removed stay removed; steps of the order before are not skipped."""
    loop = make(n=10)
    run(loop, 2)
    loop.skip(1, 0, 0)
    loop.quarantine(3)
    fastseed.init(43, rank=0, world_size=1)
    expected = samples(run(loop.in_epoch(1)))
    assert (1, 0) in expected and not any(3 in batch for batch in expected.values())
    lineage = loop.lineage()
    assert lineage.history.master_seed == 43 and len(lineage.history.entries) == 1
    assert [lineage.at(*point).sample.tolist() for point in expected] == [*expected.values()]
    with pytest.raises(ValueError, match="a step of epoch 0, which has 0"):
        lineage.at(0, 0)


def test_a_quarantine_before_the_first_step_is_saved():
    loop = make(n=20)
    loop.quarantine([3, 4])
    loop.skip(0, 2, 3)
    state = loop.state_dict()
    resumed = make(n=20)
    resumed.load_state_dict(state)
    taken = samples(run(resumed))
    assert taken == samples(run(loop)) and not {(0, 2), (0, 3)} & set(taken)
    assert not {3, 4} & {sample for batch in taken.values() for sample in batch}
    assert Lineage.load(state).at(0, 0).sample.tolist() == taken[0, 0]


def test_a_lineage_is_pickled():
    loop = make(n=10)
    run(loop, 2)
    lineage = loop.lineage()
    again = pickle.loads(pickle.dumps(lineage))
    assert again.history == lineage.history
    assert again.at(0, 1).tolist() == lineage.at(0, 1).tolist()


def test_where_counts_in_the_order_of_each_step():
    """A source that grew, or came later, moves the indices of those behind it."""

    def mixture(sizes, **more):
        sampler = MixtureSampler(sizes, dict.fromkeys(sizes, 1), n=8, **more)
        return make(n=sum(sizes.values()), sampler=sampler, shuffle=None), sampler

    loop, first = mixture({"web": 10, "code": 4})
    seen = samples(run(loop, 2))
    counts = first.counts(8, task=1, epoch=0)
    other, _ = mixture({"web": 12, "code": 4, "more": 10}, skip=counts | {"more": 0})
    other.load_state_dict(loop.state_dict(), new_order=True)
    seen |= samples(run(other))
    lineage = other.lineage()
    for sample in (0, 25):
        expected = {point for point, batch in seen.items() if sample in batch}
        found = {visit[:2] for visit in lineage.where(sample, epochs=range(2)).tolist()}
        assert found == expected
    for name, starts in (("code", (10, 12)), ("more", (10**6, 16))):
        points = {
            point for i, (point, batch) in enumerate(seen.items()) if 1 + starts[i >= 2] in batch
        }
        found = {visit[:2] for visit in lineage.where(1, name, epochs=range(2)).tolist()}
        assert found == points, name
    contract = to_dict(lineage.history)
    assert SPECIFIED["where"](contract, 25, range(2)) == [
        visit[:8] for visit in lineage.where(25, epochs=range(2)).tolist()
    ]


def quarantine(samples, steps_of_ranks):
    """Return what this rank reads after it has removed a sample, or the error."""
    rank, seen = dist.get_rank(), []
    fastseed.init(42)
    loop = steps(DataLoader(range(40), 2, shuffle=True), 1)
    try:
        for _, number, batch in loop:
            if number == steps_of_ranks[rank]:
                loop.quarantine(samples[rank])
            if number > steps_of_ranks[rank]:
                seen += batch.tolist()
    except RuntimeError as error:
        return str(error)
    return seen


def test_ranks_that_remove_other_samples_are_refused():
    first, second = ranks(2, quarantine, (7, 7), (2, 2))
    assert 7 not in first + second and len(first) == 14
    for samples, steps_of_ranks in (((7, 8), (2, 2)), ((7, 7), (2, 3))):
        for found in ranks(2, quarantine, samples, steps_of_ranks):
            assert "data.steps.quarantine: all ranks must agree, but " in found
            assert "on rank 0 but" in found
