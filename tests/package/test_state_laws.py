"""What holds of every object with a state: the way back is exact, and no other state is taken."""

import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.draws import bank_of
from helpers.jobs import draws, start
from helpers.loaders import Plain, same
from helpers.support import freed, saved_and_loaded, snapshot

import fastseed
from fastseed.data import Loader, steps
from fastseed.rollouts import Ledger


def job():
    generators, save = start(), lambda: fastseed.state_dict(rng=True)
    kept = SimpleNamespace(state_dict=save, load_state_dict=fastseed.load_state_dict)
    return "load_state_dict", kept, (draws(generators) for _ in itertools.count())


def seeder():
    of = fastseed.Seeder(42, rank=0, world_size=1)
    of.reseed(1, 7)
    save = lambda: of.state_dict(rng=True)  # noqa: E731
    kept = SimpleNamespace(state_dict=save, load_state_dict=of.load_state_dict)
    return "load_state_dict", kept, (torch.rand(3).tolist() for _ in itertools.count())


def tensors():
    _, _, moves = job()
    return "checkpoint.from_tensors", fastseed.checkpoint.Stateful(rng=True), moves


def bank():
    bank = bank_of(3)
    moves = (fastseed.random.normal(bank, 5).tolist() for _ in itertools.count())
    return "random.StreamBank.load_state_dict", bank, moves


def pool():
    pool = fastseed.GeneratorPool([torch.Generator() for _ in range(3)], "pool")
    moves = ([torch.randn(3, generator=g).tolist() for g in pool] for _ in itertools.count())
    return "GeneratorPool.load_state_dict", pool, moves


def loader(shuffle=True):
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 0)
    loader = Loader(Plain(20), 4, shuffle=shuffle, collate_fn=same)
    return "data.Loader.load_state_dict", loader, (batch for each in [loader] for batch in each)


def loader_of_torch():
    return loader(shuffle=False)  # its state has a digest of what the sampler yielded


def loop():
    fastseed.init(42, rank=0, world_size=1)
    loop = steps(Loader(Plain(10), 4, shuffle=True, collate_fn=same), 2, task=1)
    return "data.steps.load_state_dict", loop, (step for each in [loop] for step in each)


def ledger():
    book = Ledger(40, batch_size=4, samples=2, master_seed=42, window=2, lag=3)

    def train():
        while True:
            for unit in book.lease(8):
                book.complete(unit, unit.number)
            if (batch := book.next_batch()) is not None:
                book.mark_trained(batch)
                yield [unit.number for unit in batch.units]

    return "rollouts.Ledger.load_state_dict", book, train()


OBJECTS = job, seeder, tensors, bank, pool, loader, loader_of_torch, loop, ledger
each_object = pytest.mark.parametrize("make", OBJECTS, ids=lambda make: make.__name__)


def plain(state):
    """The state as JSON, with its tensors of bytes as lists."""
    held = {k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
    tensors = [v for v in state.values() if isinstance(v, torch.Tensor)]
    assert all((t.dtype, t.dim(), t.device.type) == (torch.uint8, 1, "cpu") for t in tensors)
    return json.dumps(held)


@each_object
def test_the_way_back_is_exact(make):
    """Of a state that was saved twice, is a copy, and is not used up."""
    _, kept, moves = make()
    next(moves), next(moves)
    state = kept.state_dict()
    before = plain(state)
    assert plain(kept.state_dict()) == before
    expected = [*itertools.islice(moves, 3)]
    for _ in range(2):
        _, again, after = make()
        assert again.load_state_dict(saved_and_loaded(state)) is None
        assert plain(again.state_dict()) == before
        assert [*itertools.islice(after, 3)] == expected
        assert plain(state) == before


FREED = freed(torch.zeros(1 << 20))  # to read it would end the process
MAY_LACK = re.compile(
    r"rng\.3\.(new|old|own|one|pool)$|fastseed_rank_3$"
)  # which then begin the scope


def other_than(state):
    """What is not a state, of any format."""
    yield from ([1], None, {}, {"model": {}, "state": state}, {**state, "more": 1})
    yield {**state, FREED: 1}
    for field, value in state.items():
        if not MAY_LACK.match(field):
            yield {key: state[key] for key in state if key != field}
        for bad in (FREED, torch.tensor(1), np.ones(3), None, -1, 2**64, 1.0):
            yield {**state, field: bad}
        if field != "read":  # which the next iteration compares
            yield {**state, field: "other"}
        if type(value) is int:
            yield {**state, field: str(value)}
            if field.endswith("version"):
                yield {**state, field: value + 1}


@each_object
def test_what_is_no_state_is_refused_and_nothing_changes(make):
    says, kept, moves = make()
    next(moves), next(moves)
    state = kept.state_dict()
    next(moves)
    before = plain(kept.state_dict()), snapshot()
    for bad in other_than(state):
        if make is tensors and isinstance(bad, dict) and len(bad) > len(state):
            continue  # it may hold a model's weights
        with pytest.raises((TypeError, ValueError), match=rf"^fastseed\.{re.escape(says)}: "):
            kept.load_state_dict(bad)
    assert (plain(kept.state_dict()), snapshot()) == before
