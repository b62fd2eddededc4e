"""Mixtures: the order against one computed position by position, weights, worlds, new sources."""

import collections
import functools
import itertools

import numpy as np
import pytest
from helpers import vectors
from helpers.inside import BLOCK, Mixture, Source, scalar, shuffle
from helpers.loaders import Indexed, Plain, dealt, flat, on_ranks, position_of, same, start
from torch.utils.data import ConcatDataset, DataLoader

from fastseed.data import Loader, MixtureSampler, Repeat, per_sample

SIZES = {"web": 700, "code": 90, "math": 1500}
WEIGHTS = {"web": 0.5, "code": 0.2, "math": 0.3}

RELEASES = [(53, "35e104b145c9b3d14dbb708b6e49f3348c9505f095a3c1f83d45ffd1b1b720f8")]


@functools.cache
def shuffled(key, n):
    return shuffle.indices(key, n, 0, 1, n).tolist()


def position_by_position(sizes, weights, n, *, epoch, name="mixture", task=1, master=42):
    """The order as docs/spec/derivation.md specifies it, without its closed forms."""
    scope = scalar.scope_key(master, task, epoch, 0)
    choice = scalar.name_key(scope, scalar.name_words(name))
    first = scalar.stream_key(choice, 2**24 - 1, 0, 0, 2) % 2**32
    total = sum(weights.values())
    bounds = np.cumsum([round(weight / total * 2**32) for weight in weights.values()])
    bounds[-1] = 2**32
    offsets = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False))
    counts, found = collections.Counter(), []
    for position in range(n):
        block, i = divmod(position, 1024)
        key = scalar.stream_key(choice, 2**24 - 1, 0, block, 5)
        point = (first + (block * 1024 + shuffled(key, 1024)[i]) * 2654435769) % 2**32
        source = list(sizes)[int(np.searchsorted(bounds, point, side="right"))]
        times, i = divmod(counts[source], sizes[source])
        own = scalar.name_key(scope, scalar.name_words(source))
        key = scalar.stream_key(own, 0, times, sizes[source], 5)
        found.append((offsets[source] + shuffled(key, sizes[source])[i], times))
        counts[source] += 1
    return found, counts


def numbered(indices):
    return [(int(i), getattr(i, "occurrence", 0)) for i in indices]


def source_of(index):
    ends = list(itertools.accumulate(SIZES.values()))
    return list(SIZES)[int(np.searchsorted(ends, index, side="right"))]


def own_orders(sampler, sizes):
    """The samples of each source, numbered within it, in the order in which they come."""
    ends = [0, *itertools.accumulate(sizes.values())]
    found = {name: [] for name in sizes}
    for index in sampler:
        s = int(np.searchsorted(ends, index, side="right")) - 1
        found[list(sizes)[s]].append((index - ends[s], getattr(index, "occurrence", 0)))
    return found


def test_the_order_is_the_specified_one():
    start(7)
    n = 2 * BLOCK + 300
    expected, counts = position_by_position(SIZES, WEIGHTS, n, epoch=7)
    sampler = MixtureSampler(SIZES, WEIGHTS, n=n)
    assert numbered(sampler) == expected
    assert sampler.counts(n) == counts and counts["code"] > SIZES["code"]
    for position in (0, 1, 1023, 1024, 1025, 2100):
        assert sampler.index(position) == expected[position][0]
        before = collections.Counter(source_of(index) for index, _ in expected[:position])
        assert sampler.counts(position) == {name: before[name] for name in SIZES}
    assert sampler.indices(1000, 1100).tolist() == [index for index, _ in expected[1000:1100]]
    assert sampler.indices(5, 5).tolist() == []


@pytest.mark.parametrize("weights", [WEIGHTS, {"web": 1, "code": 1e-3, "math": 1e-6}])
def test_positions_are_the_inverse(weights):
    start(7)
    n = 60 * BLOCK
    order = MixtureSampler(SIZES, weights)._order("test", None, None)
    chosen = np.concatenate([order._sources(block) for block in range(n // BLOCK)])
    for source in range(3):
        where = np.flatnonzero(chosen == source)
        assert np.array_equal(order.positions(source, np.arange(len(where))), where)
        far = np.array(
            [n * order.sources[source].share // 2**32 for n in (10**9, 10**12, 2**40 + 5)]
        )
        for position, turn in zip(order.positions(source, far).tolist(), far.tolist(), strict=True):
            assert order.counts(position)[source] == turn
            assert order.counts(position + 1)[source] == turn + 1


def texts():
    lines = (vectors.DATA / "mixture.txt").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_known_answers_are_frozen():
    assert vectors.frozen("mixture") == RELEASES
    assert vectors.changed(texts(), RELEASES) == []


def test_known_answers_of_every_row():
    for text in texts():
        kind, master, task, epoch, name, is_shuffled, count, *rest = text.split(" ")
        sources, rest = rest[: 4 * int(count)], rest[4 * int(count) :]
        names, (sizes, shares, skip) = (
            sources[::4],
            (tuple(map(int, sources[k::4])) for k in (1, 2, 3)),
        )
        scope = scalar.scope_key(int(master), int(task), int(epoch), 0)
        order = Mixture(
            scope, name, tuple(map(Source, names, sizes, shares, skip)), is_shuffled == "1"
        )
        ends = list(itertools.accumulate(sizes, initial=0))
        if kind == "at":
            found = numbered(order.share(int(rest[0]), 0, 1, int(rest[1])))
            parts = [answer.split("/") for answer in rest[2:]]
            assert found == [(ends[int(s)] + int(i), int(times)) for s, i, times in parts]
        else:
            assert kind == "turns"
            source, first, count = map(int, rest[:3])
            found = order.positions(source, np.arange(first, first + count))
            assert found.tolist() == list(map(int, rest[3:]))


def test_counts_follow_the_weights():
    start()
    sampler = MixtureSampler(SIZES, WEIGHTS, n=10)
    for position in (2**20, 10**9, 2**47 + 3):
        for name, count in sampler.counts(position).items():
            assert abs(count - WEIGHTS[name] * position) < 20 + position / 2**31
    n = 20 * BLOCK
    assert sampler.counts(2**32)["web"] == 2**31
    worst = max(
        abs(sampler.counts(p)[name] - WEIGHTS[name] * p) for p in range(0, n, 511) for name in SIZES
    )
    assert worst < 40  # of random choices, about 200 at the end


def test_another_source_leaves_the_orders_of_the_others_alone():
    start(3)
    before = own_orders(MixtureSampler(SIZES, WEIGHTS, n=3000), SIZES)
    more = {**SIZES, "new": 50}
    weights = {"web": 0.1, "code": 0.5, "math": 0.2, "new": 3.0}
    after = own_orders(MixtureSampler(more, weights, n=8000), more)
    for name in SIZES:
        shorter = min(len(before[name]), len(after[name]))
        assert shorter > 100 and before[name][:shorter] == after[name][:shorter]
    first = [index for index, times in before["web"] if times == 0]
    assert sorted(first) == list(range(700)), "each sample once before any comes again"
    again = [index for index, times in before["code"] if times == 1]
    assert sorted(again) == list(range(90)) != again


def test_a_mixture_continues_with_other_sources():
    start(3)
    sampler = MixtureSampler(SIZES, WEIGHTS, n=1500)
    done = own_orders(sampler, SIZES)
    more, weights = {**SIZES, "new": 50}, {**WEIGHTS, "new": 1.0}
    rest = MixtureSampler(more, weights, n=1500, skip=sampler.counts(1500))
    whole = own_orders(MixtureSampler(SIZES, WEIGHTS, n=3000), SIZES)
    for name, samples in own_orders(rest, more).items():
        if name in SIZES:
            both = done[name] + samples
            shorter = min(len(both), len(whole[name]))
            assert shorter > len(done[name]) and both[:shorter] == whole[name][:shorter]


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_the_order_and_resume_with_other_ranks(drop_last):
    data = per_sample(ConcatDataset([Indexed(size) for size in SIZES.values()]))

    def ranks(world, batch, state=None, stop=None, n=2500):
        def make(rank):
            sampler = MixtureSampler(SIZES, WEIGHTS, n=n, drop_last=drop_last)
            return Loader(data, batch, sampler=sampler, collate_fn=same)

        return on_ranks(make, world, epoch=5, state=state, stop=stop)

    whole = flat(ranks(1, 10, n=3000)[0][0])
    before, state = ranks(4, 7, stop=40)
    assert dealt(before) == whole[:1120] and position_of(state) == 1120
    after, _ = ranks(3, 16, state)
    expected = 2500 - 1120 - (1380 % 3 if drop_last else -(-1380 % 3))
    assert dealt(after) == whole[1120 : 1120 + expected]  # the tail continues, nothing repeats
    assert len(set(whole)) == len(whole)
    start(5)
    for weights, mixes in (({**WEIGHTS, "web": 1.0}, True), (WEIGHTS, False)):
        other = MixtureSampler(SIZES, weights, n=2500, drop_last=drop_last, shuffle=mixes)
        with pytest.raises(ValueError, match=r"state\['journal'\] must be of order .*web"):
            Loader(data, 4, sampler=other).load_state_dict(state)


def test_it_serves_a_plain_data_loader_and_sources_in_their_own_order():
    start(1)
    sources = {"b": Plain(4), "a": Plain(3)}
    sampler = MixtureSampler(sources, {"a": 1, "b": 1}, shuffle=False)
    assert len(sampler) == 7
    batches = DataLoader(ConcatDataset(sources.values()), 3, sampler=sampler, collate_fn=same)
    assert len(flat(batches)) == 7
    longer = MixtureSampler(sources, {"a": 1, "b": 1}, n=40, shuffle=False)
    orders = own_orders(longer, {"b": 4, "a": 3})
    assert [index for index, _ in orders["b"]][:9] == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert orders["a"][3] == (0, 1)
    assert isinstance(next(iter(MixtureSampler({"a": 1}, {"a": 1}, skip={"a": 1}))), Repeat)
