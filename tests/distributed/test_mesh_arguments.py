"""What ``mesh`` and ``distinct_over`` take and refuse, the presets, and what a mesh carries along."""

from __future__ import annotations

import io
import logging
import math
import pickle
import random

import numpy as np
import pytest
import torch
from helpers.meshes import expected_groups, of_rank, ranks_of, shared_by
from helpers.support import seeder

import fastseed
from fastseed import SHARED, GeneratorPool
from fastseed.distributed import mesh

# ---------------------------------------------------------------- presets

PRESETS = {  # the mesh has the dimensions dp, tp, pp, cp, ep: what each preset's streams vary along
    "data_parallel": {"python": "dp tp pp cp ep"},
    "tensor_parallel": {"python": "dp pp cp ep", "tensor-parallel": "dp tp pp cp ep"},
    "pipeline": {"python": "dp tp pp cp ep", "pipeline": "dp tp cp ep"},
    "context": {"python": "dp tp pp cp ep", "context": "dp tp pp ep"},
    "expert": {"python": "dp tp pp cp", "expert": "dp tp pp cp ep"},
}


@pytest.mark.parametrize("preset", mesh.PRESETS)
def test_presets_do_what_they_say(preset):
    names = ("dp", "tp", "pp", "cp", "ep")
    meshes = list(ranks_of((2,) * 5, names))
    drawn = {}
    for rank, where in enumerate(meshes):
        s = of_rank(rank, where, 32, distinct_over=mesh.PRESETS[preset]())
        s.reseed(1)
        for stream in PRESETS[preset]:
            if stream == "python":
                drawn.setdefault(stream, []).append(random.random())
                continue
            with s.fork(stream):
                drawn.setdefault(stream, []).append(torch.rand(()).item())
    for stream, along in PRESETS[preset].items():
        assert shared_by(drawn[stream]) == expected_groups(meshes, along.split()), stream


def test_presets_take_other_names_and_join():
    both = mesh.tensor_parallel("model") | mesh.expert("experts")
    assert both.same == ("model", "experts")
    where = {"data": (1, 2), "model": (1, 2), "experts": (1, 2)}
    s = of_rank(7, where, distinct_over=both)
    assert s.place == 1
    assert s._places.of_fork("tensor-parallel", None) == s._places.of_fork("expert", None) == 7
    with pytest.raises(TypeError):
        both | ("dp",)


# ---------------------------------------------------------------- what is refused

HERE = {"dp": (1, 2), "tp": (0, 2)}


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"mesh": 3}, TypeError, "mesh must be a DeviceMesh or a dict of"),
        ({"mesh": {}}, ValueError, "mesh must have at least one dimension"),
        ({"mesh": {3: (0, 4)}}, TypeError, "mesh must name its dimensions with strings"),
        ({"mesh": {"dp": 3}}, TypeError, r"mesh\['dp'\] must be \(rank, size\)"),
        ({"mesh": {"dp": (0, 4, 1)}}, TypeError, r"mesh\['dp'\] must be \(rank, size\)"),
        ({"mesh": {"dp": (0.0, 4)}}, TypeError, r"mesh\['dp'\]\[0\] must be an integer"),
        ({"mesh": {"dp": (4, 4)}}, ValueError, r"mesh\['dp'\]\[0\] must be in \[0, 3\], got 4"),
        ({"mesh": {"dp": (-1, 4)}}, ValueError, r"mesh\['dp'\]\[0\] must be in \[0, 3\], got -1"),
        ({"mesh": {"dp": (0, 0)}}, ValueError, r"mesh\['dp'\]\[1\] must be in \[1"),
        ({"mesh": {"a": (0, 2**12), "b": (0, 2**12)}}, ValueError, "at most 16777215 ranks"),
        ({"mesh": {"dp": (0, 3)}}, ValueError, "mesh must hold the 4 ranks of the job, got 3 of"),
        (
            {"distinct_over": "dp"},
            TypeError,
            r"distinct_over must be a tuple .*: \('dp',\), got 'dp'",
        ),
        ({"distinct_over": 3}, TypeError, "distinct_over must be a tuple of names"),
        ({"distinct_over": ("dp", "sp")}, ValueError, r"which has \('dp', 'tp'\), got 'sp'"),
        (
            {"distinct_over": {"numpy": ("x",)}},
            ValueError,
            r"varies\['numpy'\] must hold dimensions",
        ),
        ({"distinct_over": {3: ("dp",)}}, TypeError, "name must be a string"),
        (
            {"distinct_over": mesh.pipeline()},
            ValueError,
            r"varies.inside\['pipeline'\] must hold dim",
        ),
        (
            {"distinct_over": mesh.tensor_parallel("t")},
            ValueError,
            "varies.same must hold dimensions",
        ),
        ({"mesh": None, "distinct_over": ("dp",)}, ValueError, "the mesh, and init was given none"),
        ({"mesh": None, "distinct_over": mesh.tensor_parallel()}, ValueError, "come with a mesh"),
        (
            {"scheme": "fwr13y"},
            ValueError,
            "mesh and distinct_over must be None under scheme 'fwr13y'",
        ),
    ],
)
def test_arguments_are_checked(more, error, says):
    with pytest.raises(error, match=rf"fastseed\.init: .*{says}"):
        seeder(**{"rank": 2, "world_size": 4, "mesh": HERE, **more})


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"distinct_over": ("sp",)}, "distinct_over must hold dimensions of the mesh"),
        (
            {"shared": True, "distinct_over": ("dp",)},
            r"distinct_over must not contradict .* got \('dp',\) and",
        ),
        (
            {"distinct_over": ("tp",), "name": "known"},
            "distinct_over must not contradict what else was said",
        ),
        ({"shared": True, "name": "known"}, "shared must not contradict what else was said"),
    ],
)
def test_registrations_are_checked(more, says):
    s = of_rank(2, HERE, 4, distinct_over={"known": ("dp",)})
    with pytest.raises(ValueError, match=rf"fastseed\.register_generator: .*{says}"):
        s.register_generator(print, **more)
    assert len(s._registry) == 0
    s.register_generator(print, shared=True, distinct_over=())
    s.register_generator(repr, name="known", distinct_over=("dp",))
    assert [entry.place for entry in s._registry] == [SHARED, 1]


def test_streams_are_shared_only_by_ranks_that_agree_on_a_master_seed():
    for distinct_over in (("dp",), {"numpy": ()}, mesh.tensor_parallel()):
        with pytest.raises(RuntimeError, match="ranks cannot share a stream here: master_seed was"):
            seeder(None, rank=2, world_size=4, mesh=HERE, distinct_over=distinct_over)
    s = seeder(None, rank=2, world_size=4, mesh=HERE)
    for more in ({"distinct_over": ("dp",)}, {"shared": True}):
        with pytest.raises(RuntimeError, match=r"fastseed\.register_generator: .*master_seed was"):
            s.register_generator(print, **more)
    s.register_generator(print, distinct_over=("tp", "dp"))  # all ranks differ
    s.reseed(1)
    with (
        pytest.raises(RuntimeError, match=r"fastseed\.fork: ranks cannot share"),
        s.fork_rng("x", distinct_over=()),
    ):
        pass


def test_the_mesh_says_the_rank_where_nobody_else_does():
    s = fastseed.Seeder(42, mesh={"dp": (1, 3), "tp": (1, 2)})
    assert (s.rank, s.world_size) == (3, 6)


# ---------------------------------------------------------------- what it carries


def test_repr_and_log_line(caplog):
    with caplog.at_level(logging.INFO):
        fastseed.init(42, mesh={"dp": (0, 2), "tp": (0, 2)})
    assert "rank 0 of 4, mesh (dp 0/2, tp 0/2), scheme" in caplog.text
    assert "mesh=(dp 0/2, tp 0/2)" in repr(fastseed.derivation.context.seeder)


def test_pickling_keeps_the_place():
    s = of_rank(2, HERE, 4, distinct_over=mesh.tensor_parallel())
    s.reseed(1, 2)
    twin = pickle.loads(pickle.dumps(s))
    assert (twin.mesh, twin.place, twin.data_rank) == (s.mesh, 1, 1)
    twin.restore(1, 2, 0)
    assert torch.rand(()) == (s.restore(1, 2, 0), torch.rand(()))[1]


def test_pools_and_banks_on_their_own_follow_the_default():
    fastseed.init(42, rank=2, world_size=4, mesh=HERE, distinct_over=("dp",))
    pool = GeneratorPool([torch.Generator()])
    pool.reseed(1, 2)
    assert pool[0].initial_seed() == fastseed.derive_seed("pool", task=1, epoch=2, rank=1)
    fastseed.load_state_dict(fastseed.state_dict())
    pool.reseed(1, 2)
    assert pool[0].initial_seed() == fastseed.derive_seed("pool", task=1, epoch=2, rank=1)


def through_torch(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)


def test_exact_states_go_on_in_the_same_mesh():
    s = of_rank(2, HERE, 4, distinct_over=("dp",))
    s.reseed(1, 2)
    torch.rand(3)
    held, after = through_torch(s.state_dict(rng=True)), torch.rand(3)
    other = of_rank(2, HERE, 4, distinct_over=("dp",))
    other.load_state_dict(held)
    assert torch.rand(3).equal(after)


@pytest.mark.parametrize(
    ("where", "distinct_over"),
    [
        ({"dp": (2, 4)}, None),
        ({"tp": (1, 2), "dp": (0, 2)}, ("dp",)),
        (HERE, None),
        (None, None),
    ],
)
def test_on_another_mesh_only_coordinates_carry_over(where, distinct_over, caplog):
    """Ranks that shared a stream would otherwise go on drawing the same."""
    s = of_rank(2, HERE, 4, distinct_over=("dp",))
    common = torch.Generator()
    s.register_generator(common, shared=True, name="common")
    s.reseed(1, 2)
    torch.rand(3), torch.rand(3, generator=common)
    held, after = s.state_dict(rng=True), torch.rand(3, generator=common)
    other = of_rank(2, where, 4, distinct_over=distinct_over)
    other.register_generator(common, shared=True, name="common")
    other.load_state_dict(held)
    assert "the exact states of rank 2 are dropped" in caplog.text
    assert tuple(other.scope) == (1, 2, 0)
    assert torch.initial_seed() == other.derive_seed("torch.cpu", task=1, epoch=2)
    fresh = torch.rand(3)
    other.restore(1, 2, 0)
    assert fresh.equal(torch.rand(3))
    other.load_state_dict(held)
    assert torch.rand(3, generator=common).equal(after)  # what all share is all's everywhere


@pytest.mark.parametrize(
    ("sizes", "distinct_over", "unclear"),
    [
        ({"fsdp": 4}, None, ("fsdp",)),
        ({"replicate": 2, "shard": 2, "tp": 2}, mesh.tensor_parallel(), ("replicate", "shard")),
        ({"dp": 2, "batch": 2}, None, ("batch",)),
        ({"dp_shard": 2, "tp": 2, "pp": 2, "cp": 2, "ep": 2, "alone": 1}, None, ()),
        ({"dp": 2, "t": 2, "e": 2}, mesh.tensor_parallel("t") | mesh.expert("e"), ()),
    ],
)
def test_dimensions_that_may_have_been_meant_to_cut_the_data_are_named(
    sizes, distinct_over, unclear, caplog
):
    n = math.prod(sizes.values())
    seeder(
        world_size=n,
        mesh={name: (0, size) for name, size in sizes.items()},
        distinct_over=distinct_over,
    )
    said = [
        f"ranks along {unclear} of the mesh read the same samples" in m for m in caplog.messages
    ]
    assert said == ([True] if unclear else [])
    last = {name: (size - 1, size) for name, size in sizes.items()}
    seeder(rank=n - 1, world_size=n, mesh=last, distinct_over=distinct_over)
    assert len(caplog.records) == len(said)  # on rank 0 alone


def test_names_under_that_of_a_named_stream_are_their_own():
    s = of_rank(1, {"dp": (0, 2), "tp": (1, 2)}, 4)
    s.reseed(1, 0)
    with s.fork_rng("a", distinct_over=()):
        pass
    at = {"task": 1, "epoch": 0}
    assert s.derive_key("a/torch.cpu", **at) == s.derive_key("a/torch.cpu", rank=SHARED, **at)
    assert s.derive_key("a/b", **at) == s.derive_key("a/b", rank=1, **at)


def saved_by_two(distinct_over, where=None):
    """Exact states of two ranks that have drawn, and what they draw next."""
    states, after = {}, None
    for rank in range(2):
        s = seeder(rank=rank, world_size=2, distinct_over=distinct_over, mesh=where and where(rank))
        s.reseed(1, 2)
        torch.rand(3), np.random.random()
        with s.fork_rng("common", distinct_over=()):
            torch.rand(3)
        with s.fork_rng("own"):
            torch.rand(3)
        states.update(through_torch(s.state_dict(rng=True)))
        after = [torch.rand(3).tolist(), np.random.random(), forked_by(s, distinct_over=())]
    return states, after


def forked_by(s, name="common", **more):
    with s.fork_rng(name, **more):
        return torch.rand(3).tolist()


def test_a_new_rank_goes_on_with_what_all_ranks_share():
    """They would no longer draw alike if it began the scope."""
    states, after = saved_by_two(distinct_over=())
    fresh = seeder(rank=2, world_size=3)
    fresh.reseed(1, 2)
    expected = forked_by(fresh, "own")
    for rank in range(4):
        s = seeder(rank=rank, world_size=4, distinct_over=())
        s.load_state_dict(states)
        again = s.state_dict(rng=True)
        assert [torch.rand(3).tolist(), np.random.random(), forked_by(s, distinct_over=())] == after
        own = forked_by(s, "own")  # which each rank has for itself
        assert rank < 2 or own == forked_by_itself(rank, "own")
        if rank == 2:
            assert own == expected
            assert "rng.2.python" in again and "rng.2.own/torch.cpu" not in again


def forked_by_itself(rank, name):
    s = seeder(rank=rank, world_size=4, distinct_over=())
    s.reseed(1, 2)
    return forked_by(s, name)


def test_a_new_rank_takes_no_more_than_what_all_ranks_share(caplog):
    """NumPy's alone, here; and nothing where the job or this rank says otherwise."""
    states, after = saved_by_two(distinct_over={"numpy": ()})
    s = seeder(rank=2, world_size=3, distinct_over={"numpy": ()})
    s.load_state_dict(states)
    assert "to the beginning of the scope: ['python', 'torch.cpu']" in caplog.text
    assert np.random.random() == after[1]
    assert torch.initial_seed() == s.derive_seed("torch.cpu", task=1, epoch=2)
    first = torch.rand(3)
    for distinct_over, held in (
        (None, states),
        ((), states),
        ((), saved_by_two(distinct_over=None)[0]),
    ):
        s = seeder(rank=2, world_size=3, distinct_over=distinct_over)
        s.load_state_dict(held)
        loaded = np.random.random(), torch.rand(3).tolist()
        s.restore(1, 2, 0)
        assert loaded == (np.random.random(), torch.rand(3).tolist())
    assert not torch.equal(first, torch.tensor(loaded[1]))


def test_the_states_of_one_rank_serve_all_that_share_them():
    states, after = saved_by_two((), lambda rank: {"tp": (rank, 2)})
    alone = {key: held for key, held in states.items() if not key.startswith("rng.1.")}
    s = seeder(rank=1, world_size=2, distinct_over=(), mesh={"tp": (1, 2)})
    s.load_state_dict(alone)
    assert [torch.rand(3).tolist(), np.random.random(), forked_by(s, distinct_over=())] == after


def test_exact_states_without_a_mesh_are_not_taken_into_one(caplog):
    s = seeder(rank=2, world_size=4)
    s.reseed(1, 2)
    held = s.state_dict(rng=True)
    assert not any("process.mesh" in key for key in held)
    of_rank(2, HERE, 4).load_state_dict(held)
    assert "are dropped: they are of mesh () and this is mesh (dp 1/2, tp 0/2" in caplog.text
