"""Steps of several batches, and loops that end by steps: resumed anywhere, with their lengths."""

import itertools
import json

import pytest
import torch
from helpers.loaders import Indexed, Plain, draw, same
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler

import fastseed
from fastseed.data import Loader, ShuffleSampler, steps


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


LOADERS = {
    "shuffled": {"shuffle": True},
    "unshuffled": {},
    "drop_last": {"shuffle": True, "drop_last": True},
    "other sampler": {"sampler": WeightedRandomSampler(torch.ones(22), 22)},
    "workers": {"shuffle": True, "num_workers": 2, "persistent_workers": True},
}
LIMITS = {  # arguments, and the steps of the epochs with 8 batches of 3, the last of one sample
    "accumulate": ({"epochs": 3, "accumulate": 3}, [3, 3, 3]),
    "accumulate most": ({"epochs": 2, "accumulate": 7}, [2, 2]),
    "per epoch": ({"epochs": 3, "steps_per_epoch": 3}, [3, 3, 3]),
    "more than an epoch has": ({"epochs": 2, "steps_per_epoch": 30}, [8, 8]),
    "total": ({"total": 12}, [8, 4]),
    "total at an epoch's end": ({"total": 16}, [8, 8]),
    "total and epochs": ({"total": 30, "epochs": 2}, [8, 8]),
    "all": ({"total": 7, "steps_per_epoch": 2, "accumulate": 2}, [2, 2, 2, 1]),
}


def make(loading, limits):
    data = Indexed(22)
    data = fastseed.data.per_sample(data) if "num_workers" in loading else data
    return steps(DataLoader(data, 3, collate_fn=same, **loading), **limits)


def run(loop):
    seen, states = [], []
    for left, (epoch, step, batch) in zip(range(len(loop) - 1, -1, -1), loop, strict=True):
        seen.append((epoch, step, batch, draw()))
        assert len(loop) == left
        states.append(loop.state_dict())
    return seen, states


IN_WORKERS = ("accumulate", "per epoch", "total", "all")


@pytest.mark.parametrize(
    ("loading", "limits"),
    [
        pytest.param(loading, limits, marks=[pytest.mark.slow] if is_slow else [])
        for loading, limits in itertools.product(LOADERS, LIMITS)
        for is_slow in [loading == "workers" and limits not in IN_WORKERS]
    ],
)
def test_every_loop_resumes_after_every_step(loading, limits):
    limits, counts = LIMITS[limits]
    loading = LOADERS[loading]
    seen, states = run(make(loading, limits))
    if not loading.get("drop_last"):
        assert [s[:2] for s in seen] == [(e, i) for e, n in enumerate(counts) for i in range(n)]
    for i, state in enumerate(states[:: 3 if "num_workers" in loading else 1]):
        i *= 3 if "num_workers" in loading else 1
        loop = make(loading, limits)
        loop.load_state_dict(json.loads(json.dumps(state)))
        assert run(loop)[0] == seen[i + 1 :]
        loop = make(loading, {**limits, "epochs": None})
        loop.load_state_dict(state)
        rest = []
        for epoch in range(loop.epoch, seen[-1][0] + 1):
            steps_of = loop.in_epoch(epoch)
            before, lengths = len(rest), {len(steps_of)}
            for one in steps_of:
                rest.append((*one, draw()))
                lengths.add(len(steps_of))
            assert lengths | {len(steps_of)} == {len(rest) - before}
        assert rest == seen[i + 1 :]


@pytest.mark.parametrize("drop_last", [False, True])
def test_accumulated_batches_are_those_of_the_loader(drop_last):
    loading = {"shuffle": True, "drop_last": drop_last}
    plain = [batch for _, _, batch in make(loading, {"epochs": 1})]
    groups = [batches for _, _, batches in make(loading, {"epochs": 1, "accumulate": 3})]
    samples = [i for batch in plain for i, *_ in batch]
    assert [i for group in groups for batch in group for i, *_ in batch] == (
        samples[:18] if drop_last else samples
    )
    assert [len(group) for group in groups] == ([3, 3] if drop_last else [3, 3, 2])


def test_a_total_that_grows_continues_in_the_epoch():
    whole, _ = run(make({"shuffle": True}, {"total": 14}))
    ended = make({"shuffle": True}, {"total": 11})
    first, states = run(ended)
    for state in (states[-1], ended.state_dict()):
        loop = make({"shuffle": True}, {"total": 14})
        loop.load_state_dict(state)
        assert first + run(loop)[0] == whole


def test_accumulation_and_ranks_may_change_where_a_step_begins():
    loader = {"shuffle": True, "collate_fn": list}
    loop = steps(Loader(Plain(24), 2, **loader), 1, accumulate=3)
    next(iter(loop))
    state = loop.state_dict()
    order = [i for _, _, batch in steps(Loader(Plain(24), 2, **loader), 1) for i in batch]
    for rank in (0, 1):
        fastseed.init(42, rank=rank, world_size=2)
        loop = steps(Loader(Plain(24), 2, **loader), 1, accumulate=2, check=False)
        loop.load_state_dict(state)
        rest = [i for _, _, batches in loop for batch in batches for i in batch]
        assert rest == order[6 + rank :: 2]


def test_lineage_knows_the_steps():
    loop = steps(Loader(Plain(22), 3, shuffle=True), 50, accumulate=2, steps_per_epoch=2)
    seen = {(e, s): torch.cat(batches).tolist() for e, s, batches in loop}
    lineage, journal = loop.lineage(), json.loads(loop.state_dict()["journal"])
    assert all(lineage.at(*at).sample.tolist() == samples for at, samples in seen.items())
    assert len(journal["entries"]) == 1 and journal["entries"][0]["steps"] == 2
    assert lineage.where(range(22), epochs=range(2)).step.max() == 1


def test_a_state_after_an_earlier_step_counts_as_it_did():
    loop = make({"shuffle": True}, {"total": 12})
    seen, states = run(loop)
    loop = make({"shuffle": True}, {"total": 12})
    ahead = iter(loop)
    for _ in range(9):
        next(ahead)
    for at in ((0, 5), (0, 7), (1, 0)):
        i = at[0] * 8 + at[1]
        assert loop.state_dict(after=at) == states[i] and seen[i][:2] == at


def limited(state=None, stop=None, **limits):
    """The loop of a script that ends each epoch after five steps."""
    loop = steps(DataLoader(torch.arange(40), 4, shuffle=True), **limits)
    if state is not None:
        loop.load_state_dict(state)
    seen = []
    for epoch in range(loop.epoch, 3):
        for _, step, batch in loop.in_epoch(epoch):
            seen.append((epoch, step, batch.tolist()))
            if step == 4 and not limits:
                break
        if epoch == stop:
            return seen, loop.state_dict()
    return seen, None


def test_a_resumed_run_leaves_an_epoch_where_the_whole_run_left_it(caplog):
    whole, _ = limited(steps_per_epoch=5)
    first, state = limited(steps_per_epoch=5, stop=0)
    assert first + limited(state, steps_per_epoch=5)[0] == whole
    assert len(whole) == 15 and "steps_per_epoch" not in caplog.text


def test_a_break_behind_a_state_warns(caplog):
    loop = steps(DataLoader(torch.arange(40), 4, shuffle=True))
    for epoch in range(2):
        for _, step, _ in loop.in_epoch(epoch):
            if step == 4:
                break
        loop.state_dict()
        assert ("pass steps_per_epoch" in caplog.text) == (epoch == 1)
    loop = steps(DataLoader(torch.arange(40), 4, shuffle=True), 2)
    caplog.clear()
    run(loop)
    assert "steps_per_epoch" not in caplog.text


def test_a_run_that_resumes_at_an_epoch_s_end_has_no_step_of_it():
    loop = make({"shuffle": True}, {"epochs": 2})
    states = [loop.state_dict() for _ in loop.in_epoch(0)]
    loop = make({"shuffle": True}, {"epochs": 2})
    loop.load_state_dict(states[-1])
    assert (loop.epoch, loop.step, len(loop.in_epoch(0))) == (0, 8, 0)
    assert [*loop.in_epoch(0)] == [] and (loop.epoch, loop.step) == (1, 0)


def test_repr_says_where_the_loop_is():
    loop = make({}, {"total": 9, "accumulate": 2})
    for _ in loop:
        break
    text = "<fastseed.data.steps: epoch=0, step=1, task=1, total=9, accumulate=2>"
    assert repr(loop) == text


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: steps(Plain(4) and DataLoader(Plain(4)), total=0),
            r"steps: total must be in \[1,",
        ),
        (lambda: steps(DataLoader(Plain(4)), accumulate=0), r"steps: accumulate must be in \[1,"),
        (
            lambda: steps(DataLoader(Plain(4)), slots=2, accumulate=2),
            "accumulate must be None with",
        ),
        (lambda: len(steps(DataLoader(Plain(4)))), "epochs must be the number of epochs, or total"),
        (
            lambda: [*steps(DataLoader(Stream(4)), 1, steps_per_epoch=2)],
            "steps_per_epoch must be None for an iterable dataset that cannot seek: pass total",
        ),
        (
            lambda: [*steps(DataLoader(Stream(0)), total=2)],
            "loader must be one that yields batches",
        ),
        (
            lambda: [*steps(DataLoader(Plain(7), 2, drop_last=True), 1, accumulate=4)],
            "loader must be of a step in an epoch, which drop_last gives 8 samples",
        ),
    ],
)
def test_what_cannot_be_is_refused(call, text):
    with pytest.raises((TypeError, ValueError), match=text):
        call()


def test_a_stream_ends_by_steps():
    loop = steps(DataLoader(Stream(5), 2), total=7)
    assert [step[:2] for step in loop] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert len(loop) == 0


def test_ours_in_blocks_of_slots_have_the_same_limits():
    data = ShuffleSampler(22)
    loop = steps(DataLoader(Plain(22), 3, sampler=data), 2, slots=2, steps_per_epoch=2)
    assert [(e, s, len([*batches])) for e, s, batches in loop] == [
        (e, s, 2) for e in (0, 1) for s in (0, 1)
    ]
