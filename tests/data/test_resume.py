"""The state of a loader, at each moment, and the states that are refused."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from helpers.loaders import Failing, Plain, flat, same, start
from torch.utils.data import BatchSampler, SequentialSampler

import fastseed
from fastseed.data import Loader, Seekable, ShuffleSampler


def make(n=20, batch=4, **more):
    return Loader(Plain(n), batch, True, collate_fn=same, **more)


def position(batches):
    return batches.state_dict()["position"]


# ---------------------------------------------------------------- what it is


def test_a_state_is_a_few_integers(tmp_path):
    start(7)
    batches = make(num_workers=2, prefetch_factor=5, drop_last=True)
    for _ in itertools.islice(batches, 3):
        pass
    state = batches.state_dict()
    assert state == {
        "format": "fastseed.loader",
        "version": 1,
        "order": "shuffle",
        "master_seed": 42,
        "task": 1,
        "epoch": 7,
        "position": 12,
        "n": 20,
        "drop_last": 1,
        "over": 0,
    }
    torch.save(state, tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True) == state


@pytest.mark.parametrize("workers", [0, 1])
def test_position_counts_what_was_delivered(workers):
    start()
    batches = make(18, 4, num_workers=workers, prefetch_factor=4 if workers else None)
    assert position(batches) == 0
    seen = [(len(batch), position(batches)) for batch in batches]
    assert seen == [(4, 4), (4, 8), (4, 12), (4, 16), (2, 18)]
    assert (position(batches), batches.state_dict()["over"]) == (18, 1)
    iterator = iter(batches)
    assert position(batches) == 0, "fetched ahead, not delivered"
    next(iterator)
    assert position(batches) == 4
    list(make(18))
    assert position(batches) == 4, "another loader is another matter"
    del iterator
    assert position(batches) == 4, "left early: that is where it stopped"
    fastseed.reseed(1, 1)
    iter(batches)
    assert (position(batches), batches.state_dict()["epoch"]) == (0, 1)


def test_position_with_ranks():
    start(rank=1, world_size=3)
    batches = make(20, 2)
    assert [position(batches) for _ in batches] == [6, 12, 18, 20]
    start(rank=1, world_size=3)
    batches = make(20, 2, drop_last=True)
    assert [position(batches) for _ in batches] == [6, 12, 18]


def test_an_older_iteration_does_not_count():
    start()
    batches = make()
    old = iter(batches)
    next(old)
    new = iter(batches)
    next(new)
    next(old)
    next(old)
    assert position(batches) == 4
    next(new)
    assert position(batches) == 8


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_failed_is_passed_once_another_was_delivered(workers):
    start()
    batches = Loader(Failing(20, (5,)), batch_size=4, num_workers=workers, collate_fn=same)
    iterator = iter(batches)
    assert next(iterator) == [0, 1, 2, 3]
    with pytest.raises(KeyError):
        next(iterator)
    assert position(batches) == 4, "so a restart tries it again"
    assert next(iterator) == [8, 9, 10, 11]
    assert position(batches) == 12
    assert list(iterator) == [[12, 13, 14, 15], [16, 17, 18, 19]]


def test_state_before_and_after_loading():
    fastseed.init(42, rank=0, world_size=1)
    batches = make()
    fresh = batches.state_dict()
    assert (fresh["position"], fresh["task"], fresh["epoch"]) == (0, 0, 0)
    start(2)
    next(iter(batches))
    state = batches.state_dict()
    other = make(batch=3)
    other.load_state_dict(state)
    assert other.state_dict() == state, "it was not iterated since"
    state["position"] = 1
    assert position(other) == 4, "it is a copy"
    other.state_dict()["position"] = 1
    assert position(other) == 4
    other.restart()
    assert position(other) == 0
    assert len(flat(other)) == 20


def test_loading_needs_no_init():
    start()
    batches = make()
    order = flat(batches)
    next(iter(batches))
    state = batches.state_dict()
    fastseed.derivation.context.seeder = None
    fastseed.derivation.context.set_current(None)
    batches = make(batch=5)
    batches.load_state_dict(state)
    start()
    assert flat(batches) == order[4:]


# ---------------------------------------------------------------- the epoch


def stopped(epoch=3, batches_done=2, **more):
    start(epoch)
    batches = make(**more)
    for _ in itertools.islice(batches, batches_done):
        pass
    return batches.state_dict()


@pytest.mark.parametrize(
    ("seed", "task", "epoch", "workers"),
    [(42, 1, 4, 0), (42, 1, 2, 1), (42, 2, 3, 0), (43, 1, 3, 0)],
)
def test_another_epoch_than_the_states_is_refused(seed, task, epoch, workers):
    state = stopped()
    fastseed.init(seed, rank=0, world_size=1)
    fastseed.reseed(task, epoch)
    batches = make(num_workers=workers)
    batches.load_state_dict(state)
    message = (
        rf"epoch \(42, 1, 3\), but the job is in \({seed}, {task}, {epoch}\): "
        r"call fastseed.init\(42\) and fastseed.reseed\(1, 3\), or restart"
    )
    with pytest.raises(RuntimeError, match=message):
        iter(batches)
    assert batches.state_dict() == state, "nothing has changed"
    batches.restart()
    assert sorted(flat(batches)) == list(range(20))
    batches.load_state_dict(state)
    start(3)
    assert len(flat(batches)) == 12


def test_nothing_left_of_an_epoch_does_not_stand_in_the_way():
    """Saved in the last loop body of epoch 3: that epoch has no batch then, the next is whole."""
    for drop_last in (False, True):
        state = stopped(3, 5 - drop_last, n=20 - 2 * drop_last, drop_last=drop_last)
        assert state["position"] == 20 - 4 * drop_last
        batches = make(20 - 2 * drop_last, drop_last=drop_last)
        batches.load_state_dict(state)
        start(3)
        assert list(batches) == []
        batches.load_state_dict(state)
        start(4)
        assert len(list(batches)) == 5 - drop_last


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("source", ["map style", "function", "batches"])
def test_of_an_epoch_that_is_over_nothing_is_left_and_any_other_may_follow(source, drop_last):
    def make_one():
        if source == "batches":
            batches = BatchSampler(range(18), 4, drop_last)
            return Loader(Plain(18), batch_sampler=[*batches], collate_fn=same)
        if source == "function":
            data = Seekable(lambda position: iter(range(position, 18)))
            return Loader(data, 4, drop_last=drop_last, collate_fn=same)
        return make(18, drop_last=drop_last)

    start(3)
    batches = make_one()
    size = len(flat(batches))
    assert size == 18 - 2 * drop_last
    state = batches.state_dict()
    assert (state["epoch"], state["over"]) == (3, 1)
    batches = make_one()
    batches.load_state_dict(state)
    assert flat(batches) == [], "as the recipe does it: it is not repeated"
    assert batches.state_dict() == state
    fastseed.reseed(1, 4)
    assert len(flat(batches)) == size
    for seed, epoch in ((42, 4), (42, 9), (1, 0)):
        start(epoch, seed)
        batches = make_one()
        batches.load_state_dict(state)
        assert len(flat(batches)) == size
    batches.load_state_dict(state)
    start(3)
    batches.restart()
    assert len(flat(batches)) == size


def test_an_epoch_set_on_the_sampler_is_the_states_epoch():
    start(0)
    batches = make()
    batches.sampler.set_epoch(6)
    order = flat(batches)
    next(iter(batches))
    state = batches.state_dict()
    assert state["epoch"] == 6
    batches = make()
    batches.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"epoch \(42, 1, 6\), but"):
        iter(batches)
    batches.sampler.set_epoch(6)
    assert flat(batches) == order[4:]


def test_resuming_is_for_one_iteration():
    state = stopped(3, 2)
    start(3)
    batches = make()
    whole = flat(batches)
    batches.load_state_dict(state)
    assert flat(batches) == whole[8:]
    assert flat(batches) == whole
    batches.load_state_dict(state)
    next(iter(batches))
    assert flat(batches) == whole, "abandoned, so it restarts"


@pytest.mark.parametrize("workers", [0, 2])
def test_the_main_process_draws_nothing_for_it(workers):
    from helpers.support import scramble, snapshot

    state = stopped(3, 2)
    start(3)
    batches = make(num_workers=workers)
    scramble()
    before = snapshot()
    batches.load_state_dict(state)
    assert len(list(batches)) == 3
    batches.state_dict()
    assert snapshot() == before


# ---------------------------------------------------------------- refusals


def damaged(state):
    yield "not a dict", TypeError, [1], "state must be a dict"
    yield "nothing", ValueError, {}, "state must be a dict of drop_last, epoch, format"
    yield "other format", ValueError, {**state, "format": "torch"}, "state['format'] must be"
    for version in (2, "1", True, None):
        yield "version", ValueError, {**state, "version": version}, "state['version'] must be 1"
    yield "more", ValueError, {**state, "more": 1}, "state must be a dict of"
    for field in state:
        if field not in ("format", "version"):
            left = {k: v for k, v in state.items() if k != field}
            yield f"no {field}", ValueError, left, "state must be a dict of"
    for field in ("task", "epoch", "position", "master_seed"):
        for value, error in ((-1, ValueError), (2**64, ValueError), (1.0, TypeError)):
            yield field, error, {**state, field: value}, f"state['{field}'] must be"
        yield field, TypeError, {**state, field: "1"}, f"state['{field}'] must be"
        yield field, TypeError, {**state, field: True}, f"state['{field}'] must be"
    yield "n", ValueError, {**state, "n": 21}, "state['n'] must be 20, as for this loader, got 21"
    yield "n", ValueError, {**state, "n": "20"}, "state['n'] must be 20"
    yield "order", ValueError, {**state, "order": "other"}, "state['order'] must be 'shuffle'"
    yield "order", ValueError, {**state, "order": 3}, "state['order'] must be 'shuffle'"
    yield "drop_last", ValueError, {**state, "drop_last": 1}, "state['drop_last'] must be 0"


def test_every_damaged_state_is_refused_and_nothing_has_changed():
    state = stopped()
    batches = make()
    batches.load_state_dict(state)
    count = 0
    for what, error, bad, message in damaged(state):
        kept = copy.deepcopy(bad)
        with pytest.raises(error) as raised:
            batches.load_state_dict(bad)
        assert str(raised.value).startswith("fastseed.data.Loader.load_state_dict: "), what
        assert message in str(raised.value), what
        assert bad == kept and batches.state_dict() == state, what
        count += 1
    assert count > 35
    start(3)
    assert len(flat(batches)) == 12


# ---------------------------------------------------------------- the documented recipe


def test_samplers_of_ours_by_hand():
    start()
    sampler = ShuffleSampler(10, name="mine")
    batches = Loader(Plain(10), 3, sampler=sampler, collate_fn=same)
    whole = flat(batches)
    next(iter(batches))
    state = batches.state_dict()
    assert state["order"] == "mine"
    batches.load_state_dict(state)
    assert flat(batches) == whole[3:]
    for other in (ShuffleSampler(10), ShuffleSampler(10, name="mine", shuffle=False)):
        with pytest.raises(ValueError, match=r"state\['order'\] must be"):
            Loader(Plain(10), sampler=other).load_state_dict(state)
    with pytest.raises(ValueError, match=r"state\['order'\] must be 'SequentialSampler'"):
        Loader(Plain(10), sampler=SequentialSampler(range(10))).load_state_dict(state)
