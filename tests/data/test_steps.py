"""The loop over steps: where it is, what it draws, and resumes after every step."""

import copy
import itertools
import sys
from pathlib import Path

import pytest
from helpers.inside import plain_loader
from helpers.loaders import Indexed, draw, point, same
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, SequentialSampler

import fastseed
from fastseed.data import Loader, steps

EPOCHS = 2


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def make(n=10, batch=4, *, data=None, epochs=EPOCHS, **more):
    data = Indexed(n) if data is None else data
    more = {"shuffle": True, "collate_fn": same, **more}
    return steps(Loader(data, batch, **more), epochs, task=1)


def run(loop, stop=None):
    """Each step with what the loop draws in it, and the states of the steps."""
    seen, states = [], []
    for epoch, step, batch in itertools.islice(loop, stop):
        seen.append((epoch, step, batch, draw()))
        states.append(loop.state_dict() if hasattr(loop, "state_dict") else None)
    return seen, states


def test_steps_count_in_each_epoch_and_follow_the_scope():
    seen, states = run(make())
    assert [place[:2] for place in seen] == [(e, s) for e in (0, 1) for s in (0, 1, 2)]
    assert [point(state) for state in states] == [(e, s + 1) for e in (0, 1) for s in (0, 1, 2)]
    orders = [[i for _, _, b, _ in seen[k : k + 3] for i, *_ in b] for k in (0, 3)]
    assert orders[0] != orders[1] and all(sorted(o) == list(range(10)) for o in orders)
    drawn = [place[3] for place in seen]
    assert len(set(drawn)) == len(drawn)
    for epoch, step, batch, after in seen:
        fastseed.reseed(1, epoch, step)
        assert [place[1:] for place in batch] == [draw() for _ in batch] and draw() == after


def test_a_loop_that_was_left_continues():
    whole, _ = run(make())
    loop, seen = make(), []
    for count in (1, 3, 1, None):
        seen += run(loop, count)[0]
    assert seen == whole and run(loop)[0] == []
    assert (loop.epoch, loop.step) == (2, 0)


def test_a_copy_of_a_running_loop_goes_on_beside_it():
    more = {"data": range(10), "num_workers": 2, "persistent_workers": True}
    loop = make(**more)
    iterated = iter(loop)
    first = [batch for *_, batch in itertools.islice(iterated, 2)]
    copied = copy.deepcopy(loop)
    rest = [batch for *_, batch in iterated]
    assert [batch for *_, batch in copied] == rest and len(rest) == 4
    assert first + rest == [batch for *_, batch in make(**more)]


def test_an_epoch_at_a_time():
    whole, states = run(make())
    loop = make()
    assert [run(loop.in_epoch(epoch))[0] for epoch in (0, 1)] == [whole[:3], whole[3:]]
    assert [place[1:3] for place in run(loop.in_epoch(1))[0]] == [p[1:3] for p in whole[3:]]
    left = make()
    assert run(left.in_epoch(0), 1)[0] == whole[:1]  # break, as in a dry run
    assert run(left.in_epoch(1))[0] == whole[3:]
    loop = make()
    loop.load_state_dict(states[1])
    with pytest.raises(ValueError, match=r"epoch must be 0, .* start at steps.epoch, got 1"):
        loop.in_epoch(1)
    assert run(loop.in_epoch(loop.epoch))[0] == whole[2:3]
    loop.load_state_dict(states[2])  # the last step of epoch 0: nothing is left of it
    assert run(loop.in_epoch(0))[0] == [] and run(loop.in_epoch(1))[0] == whole[3:]
    loop.load_state_dict(states[2])
    assert run(loop.in_epoch(1))[0] == whole[3:]


def test_another_use_of_the_loader_moves_no_loop():
    loop = make()
    whole = list(loop)
    loop = make()
    seen = list(itertools.islice(loop, 1))
    list(loop.loader)
    assert seen + list(loop) == whole
    first, second = (steps(loop.loader, EPOCHS, task=task) for task in (1, 2))
    seen = list(itertools.islice(first, 1))
    list(second)
    assert seen + list(first) == whole
    loop.loader.load_state_dict(second.loader.state_dict())
    with pytest.raises(RuntimeError, match="a state was loaded into the loader of this loop"):
        next(iter(loop.in_epoch(0)))


def test_a_state_that_is_loaded_inside_the_loop_is_refused():
    loop = make()
    batches = iter(loop)
    next(batches)
    saved = loop.state_dict()
    next(batches)
    loop.load_state_dict(saved)
    with pytest.raises(RuntimeError, match="leave it by break"):
        next(batches)
    assert next(iter(loop))[:2] == (0, 1)


def test_an_iteration_that_cannot_start_changes_nothing(monkeypatch):
    """As where no worker can be forked, just before steps that are skipped."""
    loop = steps(DataLoader(range(40), 2, shuffle=True), 1)
    iterator = iter(loop)
    next(iterator)
    loop.skip(0, 1, 3)
    before = loop.state_dict()

    def fail(*_):
        raise OSError("no memory for another process")

    with monkeypatch.context() as patch:
        patch.setattr(plain_loader.TorchLoader, "start", fail)
        with pytest.raises(OSError, match="no memory"):
            next(iterator)
    assert loop.state_dict() == before
    points = [(epoch, step) for epoch, step, _ in loop]
    assert points == [(0, step) for step in range(4, 20)]


class Short(SequentialSampler):
    """Its length is too small."""

    def __len__(self):
        return 3


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda: DistributedSampler(range(20), 2, 0, drop_last=True), [4, 4, 2]),
        (lambda: BatchSampler(SequentialSampler(range(5)), 4, True), [4]),
        (lambda: BatchSampler(Short(range(5)), 4, True), [4]),
    ],
    ids=["what a sampler leaves out, not its batches", "each rank has all", "no length ends it"],
)
def test_only_what_the_loader_drops_is_dropped(make, size):
    fastseed.init(42, rank=0, world_size=2)
    sampler = make()
    name = "batch_sampler" if isinstance(sampler, BatchSampler) else "sampler"
    more = {} if name == "batch_sampler" else {"batch_size": 4}
    loop = steps(DataLoader(range(20), **{name: sampler}, **more), 1)
    assert [len(batch) for _, _, batch in loop] == size


def test_after_the_last_batch_of_a_sampler_that_drops_the_next_epoch_comes():
    fastseed.init(42, rank=0, world_size=2)

    def make(drop_last=True):
        sampler = DistributedSampler(range(9), 2, 0, drop_last=drop_last)
        return steps(DataLoader(range(9), 2, sampler=sampler), 2)

    first, loop = make(), make()
    assert [step for _, step, _ in first.in_epoch(0)] == [0, 1]
    loop.load_state_dict(first.state_dict())
    assert [(epoch, step) for epoch, step, _ in loop] == [(1, 0), (1, 1)]
    with pytest.raises(ValueError, match="must be of drop_last False, as here"):
        make(drop_last=False).load_state_dict(first.state_dict())


@pytest.mark.parametrize("more", [{}, {"slots": 2}])
def test_an_epoch_without_a_step_is_an_error(more):
    loop = steps(DataLoader(range(3), 4, shuffle=True, drop_last=True), 2, **more)
    with pytest.raises(ValueError, match=r"which drop_last gives \d samples, got '3 samples'"):
        list(loop)


def test_a_step_makes_few_calls():
    package, count = str(Path(fastseed.__file__).parent), 0

    def profile(frame, event, _):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(package)

    counts, loop = [], iter(steps(DataLoader(range(100), 4, shuffle=True), EPOCHS, task=1))
    for _ in range(3):
        before, count = sys.getprofile(), 0
        sys.setprofile(profile)
        next(loop)
        sys.setprofile(before)
        counts.append(count)
    # 139 and 37 by themselves; here dropout follows the scope, and chunks of orders are small.
    assert counts[0] <= 149 and counts[2] <= 47
