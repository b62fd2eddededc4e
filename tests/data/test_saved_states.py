"""States, loaders and samplers that are refused or warned of, with what to do."""

import itertools
import logging
import re

import numpy as np
import pytest
import torch
from helpers.inside import context, warn_once
from helpers.loaders import Balanced, Indexed, Plain, Stateful, same
from helpers.support import snapshot
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import fastseed
from fastseed.data import Loader, ShuffleSampler, per_sample, steps


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)
    warn_once.cache_clear()


def make(n=10, epochs=2):
    return steps(Loader(Plain(n), 4, shuffle=True, collate_fn=same), epochs, task=1)


def stopped(count):
    """The state of a loop after so many steps."""
    loop = make()
    for _ in itertools.islice(loop, count):
        pass
    return loop.state_dict()


def of_loader():
    """The state of the loader then."""
    fastseed.reseed(1, 0)
    loader = make().loader
    for _ in itertools.islice(loader, 2):
        pass
    return loader.state_dict()


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "torch"}, "state['format'] must be 'fastseed.loader', as for this loader"),
        ({"version": 2}, "state['version'] must be 3, as for this loader, got 2"),
        ({"over": 2}, "state['over'] must be in [0, 1], got 2"),
        ({"journal": "none"}, "state['journal'] must be"),
        ({"more": 1}, "state must be a dict of format, journal, over, version, from"),
    ],
)
def test_what_is_wrong_with_a_state_is_named(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make().loader.load_state_dict({**of_loader(), **change})


def test_a_state_of_another_order_is_named():
    shuffled, longer, in_order = of_loader(), make(11).loader, Loader(Plain(10), 4)
    with pytest.raises(ValueError, match="must be of n 11, as here, got 10"):
        longer.load_state_dict(shuffled)
    with pytest.raises(ValueError, match="of order 'SequentialSampler', as here, got 'shuffle'"):
        in_order.load_state_dict({**shuffled, "read": ""})
    divided = Loader(Plain(10), 4, sampler=DistributedSampler(Plain(10), 2, 0))
    with pytest.raises(ValueError, match=r"'DistributedSampler', as here \(a ShuffleSampler in"):
        divided.load_state_dict({**shuffled, "read": ""})


@pytest.mark.parametrize(
    "settings",
    [{"sampler": ShuffleSampler(10)}, {"sampler": Balanced(10)}, {"dataset": Stateful(10)}],
)
def test_after_an_interrupt_between_the_loader_and_the_loop_the_batch_comes_again(settings):
    """The journal alone says where the loop is, whatever its loader has handed out."""
    loop, again = (steps(Loader(**{"dataset": Plain(10), **settings}), 2) for _ in range(2))
    iterator = loop.in_epoch(0)
    _, (*_, second) = next(iterator), next(iterator)
    loop.step -= 1  # the interrupt came before the step was counted
    if "dataset" in settings:  # which is behind the batch
        with pytest.raises(RuntimeError, match=r"the dataset lost its place, as the loader was"):
            loop.state_dict()
        return
    again.load_state_dict(loop.state_dict())
    assert next(iter(again)) == (0, 1, second)


def test_numpy_integers_are_accepted():
    def numpy(state):
        return {k: np.int64(v) if type(v) is int else v for k, v in state.items()}

    loop, loader = make(), make().loader
    loop.load_state_dict(numpy(stopped(2)))
    assert next(iter(loop))[:2] == (0, 2)
    loader.load_state_dict(numpy(of_loader()))
    assert loader.state_dict() == of_loader()


def test_a_state_of_another_master_seed_says_which():
    state = stopped(2)
    fastseed.init(43, rank=0, world_size=1)
    loop = make()
    message = r"under master seed 42, but the job has 43: call fastseed\.init\(42\)"
    with pytest.raises(ValueError, match=message):
        loop.load_state_dict(state)
    fastseed.init(42, rank=0, world_size=1)
    loop.load_state_dict(state)
    assert next(iter(loop))[:2] == (0, 2)


# ---------------------------------------------------------------- the wrong epoch


@pytest.mark.parametrize("done", [3, 4])
def test_a_loop_over_epochs_starts_where_the_state_continues(done):
    """Else the epochs before would be trained twice."""
    state, loop = stopped(4), make(epochs=None)
    if done == 3:  # after the loop over epoch 0
        whole = make()
        list(whole.in_epoch(0))
        state = whole.state_dict()
    loop.load_state_dict(state)
    before = snapshot(), context.seeder.scope, loop.state_dict()
    with pytest.raises(ValueError, match=r"epoch must be 1, .* start at steps.epoch, got 0"):
        for epoch in range(3):
            loop.in_epoch(epoch)
    assert (snapshot(), context.seeder.scope, loop.state_dict()) == before
    seen = [(e, s) for e in range(loop.epoch, 3) for _, s, _ in loop.in_epoch(e)]
    assert seen == [(1, s) for s in range(done - 3, 3)] + [(2, 0), (2, 1), (2, 2)]
    list(loop.in_epoch(0))  # after that the loop over epochs is the script's


def test_a_refused_start_leaves_the_job_where_it_is():
    """As after a state was loaded into the loader itself."""
    loop = make()
    loop.loader.load_state_dict(of_loader())
    fastseed.reseed(5, 6, 7)
    before = snapshot(), context.seeder.scope, loop.state_dict()
    with pytest.raises(RuntimeError, match="a state was loaded into the loader of this loop"):
        next(iter(loop))
    assert (snapshot(), context.seeder.scope, loop.state_dict()) == before


def test_a_registered_sampler_may_be_in_another_epoch_before_the_loop():
    sampler = DistributedSampler(Plain(8), 1, 0)
    fastseed.register_generator(sampler)

    def made():
        return steps(DataLoader(Plain(8), 2, sampler=sampler, collate_fn=same), 3)

    whole = list(made())
    loop = made()
    for _ in itertools.islice(loop, 6):
        pass
    saved = loop.state_dict()
    fastseed.reseed(1, 2)
    resumed = made()
    resumed.load_state_dict(saved)
    assert list(resumed) == whole[6:]


def test_steps_have_the_length_of_an_epoch_and_the_dataset():
    data = Plain(10)
    loop = steps(DataLoader(data, 4))
    assert len(loop.in_epoch(0)) == 3 and loop.dataset is data
    assert [len(list(loop.in_epoch(epoch))) for epoch in (0, 1)] == [3, 3]


def test_a_generator_beside_shuffle_is_named(caplog):
    existing = DataLoader(Plain(9), shuffle=True, generator=torch.Generator())
    for make_one in (
        Loader,
        steps,
        lambda _: Loader(Plain(9), shuffle=True, generator=torch.Generator()),
    ):
        caplog.clear()
        make_one(existing)
        (record,) = caplog.records
        assert "shuffle=True follows the master seed, not the generator" in record.message
    caplog.clear()
    Loader(Plain(9), generator=torch.Generator())
    assert caplog.records == []


# ---------------------------------------------------------------- two ranks


def read(make_one):
    """Return the samples that each of two ranks reads."""
    found = []
    for rank in (0, 1):
        fastseed.init(42, rank=rank, world_size=2)
        fastseed.reseed(1, 0)
        made = make_one()
        is_loop = hasattr(made, "in_epoch")
        batches = [batch for *_, batch in made.in_epoch(0)] if is_loop else made
        found.append([i for batch in batches for i in batch])
    return found


MORE = {"collate_fn": same, "batch_size": 2}
SHUFFLED = {
    "steps": lambda: steps(DataLoader(Plain(8), shuffle=True, **MORE)),
    "of a DataLoader": lambda: Loader(DataLoader(Plain(8), shuffle=True, **MORE)),
    "loader": lambda: Loader(Plain(8), shuffle=True, **MORE),
    "in order": lambda: Loader(Plain(8), sampler=ShuffleSampler(8, shuffle=False), **MORE),
}


@pytest.mark.parametrize("kind", SHUFFLED)
def test_ranks_divide_what_is_shuffled(kind, caplog):
    first, second = read(SHUFFLED[kind])
    assert sorted(first + second) == list(range(8))
    assert not any("ranks reads all" in record.message for record in caplog.records)


WHOLE = {
    "SequentialSampler": lambda data: {"shuffle": False},
    "RandomSampler": lambda data: {"sampler": RandomSampler(range(8))},
    "SubsetRandomSampler": lambda data: {"sampler": SubsetRandomSampler(range(8))},
}


@pytest.mark.parametrize("resumable", [steps, lambda made: steps(made).loader])
@pytest.mark.parametrize("name", WHOLE)
def test_ranks_that_read_the_same_are_warned_of(name, resumable, caplog):
    data = Plain(8)
    first, second = read(lambda: resumable(DataLoader(data, **WHOLE[name](data), **MORE)))
    assert sorted(first) == sorted(second) == list(range(8))
    (message,) = {r.message for r in caplog.records if "ranks reads all" in r.message}
    assert f"each of the 2 ranks reads all samples that {name} yields: pass shuffle=True" in message


def test_ranks_that_are_meant_to_read_the_same_are_not(caplog):
    replacing = WeightedRandomSampler([1.0] * 8, 8)
    divided = DistributedSampler(range(8), 2, 0)
    for sampler in (replacing, RandomSampler(range(8), replacement=True), divided):
        read(lambda sampler=sampler: Loader(Plain(8), sampler=sampler, **MORE))
    for rank in (0, 1):
        mesh = {"dp": (0, 1), "tp": (rank, 2)}
        fastseed.init(42, rank=rank, world_size=2, mesh=mesh)
        fastseed.reseed(1, 0)
        list(Loader(Plain(8), **MORE))
    assert not any("ranks reads all" in record.message for record in caplog.records)


@pytest.mark.parametrize(
    ("settings", "is_registered", "warns"),
    [({}, False, True), ({}, True, False), ({"seed": 3}, False, False), ({"shuffle": False}, 0, 0)],
)
def test_a_divided_order_that_ignores_the_seed_of_the_job_is_warned_of(
    settings, is_registered, warns, caplog
):
    def make():
        sampler = DistributedSampler(range(8), 2, 0, **settings)
        if is_registered:
            fastseed.register_generator(sampler)
        return steps(DataLoader(Plain(8), sampler=sampler, **MORE))

    read(make)
    assert (
        any("DistributedSampler follows its seed 0" in r.message for r in caplog.records) == warns
    )


@pytest.mark.parametrize(
    "make_one", [lambda: list(ShuffleSampler(8)), lambda: per_sample(Indexed(8))[0]]
)
def test_without_a_loader_the_scope_of_init_is_no_epoch(make_one):
    """Every epoch would be the same."""
    with pytest.raises(RuntimeError, match=r"fastseed\.reseed\(task, epoch\)"):
        make_one()
    fastseed.reseed(1, 3)
    state, found = fastseed.state_dict(), make_one()
    fastseed.init(42, rank=0, world_size=1)
    fastseed.load_state_dict(state)
    assert make_one() == found
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(0)
    assert make_one() != found


def test_a_run_that_resumes_in_its_process_does_not_warn(caplog):
    train = per_sample(Indexed(12))
    batches = DataLoader(train, 4, shuffle=True, collate_fn=same)
    valid = DataLoader(per_sample(Indexed(12)), 4, collate_fn=same)
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        loop = steps(batches, 2)
        for epoch in range(2):
            for _ in loop.in_epoch(epoch):
                saved = loop.state_dict()
            fastseed.reseed(2, epoch)
            list(valid)
        resumed = steps(batches, 2)
        resumed.load_state_dict(saved)
        list(resumed)
    texts = [r.message for r in caplog.records if "was used before" not in r.message]
    assert texts == []
