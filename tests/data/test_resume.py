"""The state of a loader, at each moment, and the states that are refused."""

import itertools

import pytest
import torch
from helpers import loaders
from helpers.loaders import Failing, Plain, flat, point, same, start
from torch.utils.data import BatchSampler

import fastseed
from fastseed.data import Lineage, Loader, Seekable


def make(n=20, batch=4, **more):
    return Loader(Plain(n), batch, True, collate_fn=same, **more)


def position(batches):
    return loaders.position_of(batches.state_dict())


def test_a_state_is_a_journal_and_whether_the_epoch_is_over(tmp_path):
    start(7)
    batches = make(num_workers=2, prefetch_factor=5, drop_last=True)
    for _ in itertools.islice(batches, 3):
        pass
    state = batches.state_dict()
    assert state.keys() == {"format", "version", "journal", "over"} and state["over"] == 0
    history = Lineage.load(state).history
    assert (history.master_seed, history.task, history.point) == (42, 1, (7, 0))
    (order,), (entry,) = history.orders, history.entries
    assert (order.describe(), order.n) == ("shuffle", 20)
    assert (entry.position, entry.ranks, entry.drop_last) == (12, 1, 1)
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
    assert (position(batches), point(batches.state_dict())) == (0, (1, 0))


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
    assert (loaders.position_of(fresh), point(fresh)) == (0, (0, 0))
    start(2)
    next(iter(batches))
    state = batches.state_dict()
    other = make(batch=3)
    other.load_state_dict(state)
    assert other.state_dict() == state, "it was not iterated since"
    state["journal"] = "none"
    assert position(other) == 4, "it is a copy"
    other.state_dict()["journal"] = "none"
    assert position(other) == 4
    other.restart()
    assert position(other) == 0
    assert len(flat(other)) == 20


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
    assert (point(state), state["over"]) == ((3, 0), 1)
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
    batches = make_one()
    next(iter(batches))
    state = batches.state_dict()
    fastseed.reseed(1, 4)
    batches.load_state_dict(state)
    with pytest.raises(RuntimeError, match="but the job is in"):  # a batch is left
        iter(batches)


def test_an_epoch_set_on_the_sampler_is_the_states_epoch():
    start(0)
    batches = make()
    batches.sampler.set_epoch(6)
    order = flat(batches)
    next(iter(batches))
    state = batches.state_dict()
    assert point(state) == (6, 0)
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


def test_a_sampler_that_yields_others_than_before_is_refused():
    order = [0, 1, 2, 3, 4, 5]
    start()
    batches = Loader(Plain(6), 2, sampler=loaders.Given(lambda: order, 6), collate_fn=same)
    next(iter(batches))
    order.reverse()
    batches.load_state_dict(batches.state_dict())
    with pytest.raises(RuntimeError, match="must yield the same indices"):
        list(batches)
