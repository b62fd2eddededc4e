"""Ranks that share a stream, on every mesh of eight."""

import itertools
import math
import random

import numpy as np
import pytest
import torch
from helpers.meshes import NAMES, expected_groups, of_rank, ranks_of, shared_by
from helpers.support import scramble, seeder, snapshot

import fastseed
from fastseed import SHARED, GeneratorPool
from fastseed.random import keyed

SHAPES = [s for s in itertools.product((1, 2, 4, 8), repeat=3) if math.prod(s) == 8]
SUBSETS = [s for n in range(4) for s in itertools.combinations(NAMES, n)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_mesh_of_eight_ranks(shape):
    """Built-in, registered and named streams, over every set of dimensions."""
    meshes = list(ranks_of(shape))
    for along in SUBSETS:
        drawn = {name: [] for name in ("python", "numpy", "torch", "seed", "pool", "fork", "key")}
        for rank, where in enumerate(meshes):
            s = of_rank(rank, where, distinct_over=along)
            seeds, pool = [], GeneratorPool([torch.Generator(), torch.Generator()], "pool")
            s.register_generator(seeds.append, name="seed")
            s.register_generator(pool, distinct_over=along)
            s.reseed(1, 7)
            drawn["python"].append(random.random())
            drawn["numpy"].append(np.random.random())
            drawn["torch"].append(torch.rand(()).item())
            drawn["seed"].append(seeds[0])
            drawn["pool"].append(torch.rand((), generator=pool[1]).item())
            with s.fork_rng("f", distinct_over=along):
                drawn["fork"].append(torch.rand(()).item())
            drawn["key"].append(s.derive_key("anything", task=1, epoch=7))
        groups = expected_groups(meshes, along)
        for name, values in drawn.items():
            assert shared_by(values) == groups, (along, name)


@pytest.mark.parametrize(("shape", "along"), list(zip(SHAPES, SUBSETS + SUBSETS, strict=False)))
def test_built_in_streams_that_are_distinct_over_different_dimensions(shape, along):
    meshes = list(ranks_of(shape))
    other = tuple(name for name in NAMES if name not in along)
    drawn = []
    for rank, where in enumerate(meshes):
        of_rank(rank, where, distinct_over={"numpy": along, "python": other}).reseed(1, 7)
        drawn.append((np.random.random(), random.random(), torch.rand(()).item()))
    numpy, python, torchs = zip(*drawn, strict=True)
    assert shared_by(numpy) == expected_groups(meshes, along)
    assert shared_by(python) == expected_groups(meshes, other)
    assert shared_by(torchs) == [[rank] for rank in range(8)]


def test_rank_field_is_the_mixed_radix_index_in_the_order_of_the_mesh():
    for order in itertools.permutations(("a", "b", "c")):
        sizes = {"a": 2, "b": 3, "c": 4}
        for rank, places in enumerate(itertools.product(*(range(sizes[n]) for n in order))):
            where = {n: (p, sizes[n]) for n, p in zip(order, places, strict=True)}
            s = of_rank(
                rank, where, 24, data_over=(), distinct_over=["c", "a"]
            )  # the order of the argument does not matter
            (f, _), (m, n) = (where[name] for name in order if name != "b")
            assert s.place.fields.default == f * n + m
            assert s.place.fields.under("fork_rng", "x", order) == rank
            assert s.derive_key("numpy", task=1) == s.derive_key("numpy", task=1, rank=f * n + m)


def test_a_mesh_of_all_ranks_in_order_changes_nothing():
    for rank, where in enumerate(ranks_of((2, 2, 2))):
        of_rank(rank, where).reseed(1, 7, 3)
        with_mesh = snapshot()
        seeder(rank=rank, world_size=8).reseed(1, 7, 3)
        assert with_mesh == snapshot()


def test_streams_that_are_distinct_over_nothing_are_shared():
    where = {"dp": (1, 2), "tp": (1, 2)}
    s = of_rank(3, where, 4, distinct_over=())
    assert s.derive_key("numpy", task=1) == s.derive_key("numpy", task=1, rank=SHARED)
    seeds = [], []
    s.register_generator(seeds[0].append, shared=True, name="a")
    s.register_generator(seeds[1].append, distinct_over=(), name="b")
    assert [entry.shared for entry in s.generators.registry] == [True, True]
    s.reseed(1)
    other = of_rank(2, {"dp": (1, 2), "tp": (0, 2)}, 4)
    again = []
    other.register_generator(again.append, shared=True, name="a")
    other.reseed(1)
    assert again == seeds[0] and len(seeds[1]) == 1 and seeds[0] != seeds[1]
    alone = seeder(distinct_over=())
    alone.reseed(1)
    assert alone.derive_key("python", task=1) == s.derive_key("python", task=1)


@pytest.mark.parametrize("distinct_over", [None, ("dp",), {"numpy": ("tp",)}])
def test_keys_and_generators_agree(distinct_over):
    scramble()
    s = of_rank(5, {"dp": (1, 2), "pp": (0, 2), "tp": (1, 2)}, distinct_over=distinct_over)
    s.reseed(3, 4, 5)
    for name, draw in (("python", random), ("numpy", None), ("torch.cpu", None)):
        key = s.derive_key(name, task=3, epoch=4, step=5)
        if name == "python":
            assert draw.getstate() == random.Random(key).getstate()
        elif name == "torch.cpu":
            assert torch.initial_seed() == key % 2**64
            assert s.derive_seed(name, task=3, epoch=4, step=5) == key % 2**64
        else:
            from fastseed._backend import derive

            assert (np.random.get_state()[1] == derive.mt19937_state(key)).all()
        lo, hi = s.derive_keys(name, 1, task=3, epoch=4, step=5)[0].tolist()
        assert lo | hi << 64 == key


@pytest.mark.parametrize(
    ("given", "rank"),
    [(None, 5), (("dp",), 1), ((), SHARED), ({"flow": ("dp",)}, 1), ({"other": ()}, 5)],
)
def test_a_block_has_the_rank_field_of_its_streams(given, rank):
    where = {"dp": (1, 2), "pp": (0, 2), "tp": (1, 2)}
    fastseed.init(42, rank=5, world_size=8, mesh=where, distinct_over=given)
    fastseed.reseed(3)
    for name in ("keyed/flow", "flow/torch.cpu"):
        keys = [fastseed.derive_key(name), fastseed.derive_key(name, rank=rank)]
        for block in (keyed("flow", 0), fastseed.fork_rng("flow", index=0)):
            with block:
                keys.append(fastseed.derive_key(name))
        assert len({*keys, fastseed.derive_key(name)}) == 1, name
    with keyed("flow"):
        drawn = torch.rand(4)
    key = fastseed.derive_key("keyed/flow")
    assert torch.equal(drawn, fastseed.random.uniform(key, (4,)))
    with fastseed.fork_rng("flow"):
        assert torch.initial_seed() == fastseed.derive_seed("flow/torch.cpu")


def test_pools_and_banks_reseed_as_their_names_say():
    """Also alone, where nothing registered them."""
    fastseed.init(42, mesh={"dp": (1, 2), "tp": (0, 2)}, rank=2, world_size=4,
                  distinct_over={"shared": (), "own": ("dp",)})  # fmt: skip
    for name in ("shared", "own", "other"):
        pool = fastseed.GeneratorPool([torch.Generator()], name)
        pool.reseed(3, 4)
        assert pool[0].initial_seed() == fastseed.derive_seed(name, task=3, epoch=4)
        banks = [fastseed.random.StreamBank(1, name) for _ in range(2)]
        fastseed.reseed(3, 4)
        banks[0].reseed(3, 4)
        banks[1].reseed_from_scope()
        expected = fastseed.random.bits(fastseed.derive_key(name), (5,))
        for bank in banks:
            assert torch.equal(fastseed.random.bits(bank, (5,))[0], expected)


@pytest.mark.parametrize(
    ("where", "share"),
    [
        ({"dp": (1, 4), "tp": (1, 2)}, (1, 4)),
        ({"pp": (1, 2), "dp_replicate": (1, 2), "dp_shard": (0, 2)}, (2, 4)),
        ({"tp": (3, 4)}, (0, 1)),
    ],
)
def test_the_data_are_divided_along_data_parallel_dimensions(where, share):
    s = of_rank(3, where, math.prod(size for _, size in where.values()))
    assert (s.data_rank, s.data_world_size) == share


def test_without_a_mesh_each_rank_has_its_share():
    s = seeder(rank=3, world_size=8)
    assert (s.data_rank, s.data_world_size, s.mesh) == (3, 8, None)
