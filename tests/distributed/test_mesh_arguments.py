"""The arguments ``mesh``, ``data_over`` and ``distinct_over``, and what depends on a mesh."""

import logging
import math
import pickle
import re

import numpy as np
import pytest
import torch
from helpers.meshes import of_rank
from helpers.support import saved_and_loaded, seeder

import fastseed
from fastseed import GeneratorPool

# ---------------------------------------------------------------- refusals

HERE = {"dp": (1, 2), "tp": (0, 2)}


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"mesh": 3}, TypeError, "mesh must be a DeviceMesh or a dict of"),
        ({"mesh": {}}, ValueError, "mesh must be a mesh with at least one dimension"),
        ({"mesh": {3: (0, 4)}}, TypeError, "the name of a dimension of mesh must be a string"),
        ({"mesh": {"dp": 3}}, TypeError, r"mesh\['dp'\] must be \(rank, size\)"),
        ({"mesh": {"dp": (0.0, 4)}}, TypeError, r"mesh\['dp'\]\[0\] must be an integer"),
        ({"mesh": {"dp": (4, 4)}}, ValueError, r"mesh\['dp'\]\[0\] must be in \[0, 3\], got 4"),
        ({"mesh": {"dp": (0, 0)}}, ValueError, r"mesh\['dp'\]\[1\] must be in \[1"),
        ({"mesh": {"a": (0, 2**12), "b": (0, 2**12)}}, ValueError, "at most 16777215 ranks"),
        ({"mesh": {"dp": (0, 3)}}, ValueError, "mesh must be a mesh of the 4 ranks of the job"),
        ({"distinct_over": "dp"}, TypeError, r"a tuple of dimensions \(.*\('dp',\)\), got 'dp'"),
        ({"distinct_over": 3}, TypeError, "distinct_over must be a tuple of dimensions"),
        ({"distinct_over": ("dp", "sp")}, ValueError, r"of the mesh, \('dp', 'tp'\), got"),
        ({"distinct_over": {"numpy": ("x",)}}, ValueError, r"\['numpy'\] must be a tuple of dim"),
        ({"distinct_over": {3: ("dp",)}}, TypeError, "name must be a string"),
        ({"distinct_over": {"keyed/x": ()}}, ValueError, r"must be 'x', got 'keyed/x'"),
        ({"distinct_over": {"a/b/torch.cpu": ()}}, ValueError, "must be 'a/b', got 'a/b/torch"),
        ({"mesh": None, "distinct_over": ("dp",)}, ValueError, "empty unless init has a mesh"),
        ({"data_over": "dp"}, TypeError, r"data_over must be a tuple of dimensions \(.*got 'dp'"),
        ({"data_over": ("fsdp",)}, ValueError, r"of the mesh, \('dp', 'tp'\), got"),
        ({"mesh": None, "data_over": ("dp",)}, ValueError, "data_over must be empty unless init"),
    ],
)
def test_arguments_are_checked(more, error, message):
    with pytest.raises(error, match=rf"fastseed\.Seeder: .*{message}"):
        seeder(**{"rank": 2, "world_size": 4, "mesh": HERE, **more})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"distinct_over": ("sp",)}, "distinct_over must be a tuple of dimensions of the mesh"),
        ({"shared": True, "distinct_over": ("dp",)}, r"distinct_over must be \(\) or None where"),
        ({"distinct_over": ("tp",), "name": "known"}, r"distinct_over must be consistent with"),
        ({"shared": True, "name": "known"}, "shared must be consistent with"),
    ],
)
def test_registrations_are_checked(more, message):
    s = of_rank(2, HERE, 4, distinct_over={"known": ("dp",)})
    with pytest.raises(ValueError, match=rf"fastseed\.register_generator: {message}"):
        s.register_generator(print, **more)
    assert len(s.generators.registry) == 0
    s.register_generator(print, shared=True, distinct_over=())
    s.register_generator(repr, name="known", distinct_over=("dp",))
    assert [entry.shared for entry in s.generators.registry] == [True, False]


def test_streams_are_shared_only_by_ranks_that_agree_on_a_master_seed():
    for distinct_over in (("dp",), {"numpy": ()}):
        with pytest.raises(RuntimeError, match="ranks cannot share a stream before they agree"):
            seeder(None, rank=2, world_size=4, mesh=HERE, distinct_over=distinct_over)
    s = seeder(None, rank=2, world_size=4, mesh=HERE)
    for more in ({"distinct_over": ("dp",)}, {"shared": True}):
        with pytest.raises(
            RuntimeError, match=r"fastseed\.register_generator: .*(master_seed was|agree on)"
        ):
            s.register_generator(print, **more)
    s.register_generator(print, distinct_over=("tp", "dp"))  # all ranks differ
    s.reseed(1)
    with (
        pytest.raises(RuntimeError, match=r"fastseed\.fork_rng: ranks cannot share"),
        s.fork_rng("x", distinct_over=()),
    ):
        pass


def test_the_mesh_gives_the_rank_where_nothing_else_does():
    s = fastseed.Seeder(42, mesh={"dp": (1, 3), "tp": (1, 2)})
    assert (s.rank, s.world_size) == (3, 6)


# ---------------------------------------------------------------- what depends on a mesh


def test_the_log_line_has_the_mesh(caplog):
    with caplog.at_level(logging.INFO):
        fastseed.init(42, mesh={"dp": (0, 2), "tp": (0, 2)})
    assert "rank 0 of 4, mesh (dp 0/2, tp 0/2), backend" in caplog.text


def test_pickling_keeps_the_mesh():
    s = of_rank(2, HERE, 4, distinct_over=("dp",), data_over=("tp",))
    s.reseed(1, 2)
    twin = pickle.loads(pickle.dumps(s))
    assert (twin.mesh, twin.place.fields.default, twin.data_rank) == (s.mesh, 1, 0)
    twin.move(1, 2, 0)
    assert torch.rand(()) == (s.move(1, 2, 0), torch.rand(()))[1]


def test_pools_and_banks_on_their_own_follow_the_default():
    fastseed.init(42, rank=2, world_size=4, mesh=HERE, distinct_over=("dp",))
    pool = GeneratorPool([torch.Generator()], "pool")
    pool.reseed(1, 2)
    assert pool[0].initial_seed() == fastseed.derive_seed("pool", task=1, epoch=2, rank=1)
    fastseed.load_state_dict(fastseed.state_dict())
    pool.reseed(1, 2)
    assert pool[0].initial_seed() == fastseed.derive_seed("pool", task=1, epoch=2, rank=1)


def test_exact_states_continue_in_the_same_mesh():
    s = of_rank(2, HERE, 4, distinct_over=("dp",))
    s.reseed(1, 2)
    torch.rand(3)
    held, after = saved_and_loaded(s.state_dict(rng=True)), torch.rand(3)
    other = of_rank(2, HERE, 4, distinct_over=("dp",))
    other.load_state_dict(held)
    assert torch.rand(3).equal(after)


@pytest.mark.parametrize(
    ("where", "distinct_over"),
    [({"dp": (2, 4)}, None), ({"tp": (1, 2), "dp": (0, 2)}, ("dp",)), (HERE, None), (None, None)],
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
    other.move(1, 2, 0)
    assert fresh.equal(torch.rand(3))
    other.load_state_dict(held)
    assert torch.rand(3, generator=common).equal(after)  # a stream that all ranks share


@pytest.mark.parametrize(
    ("sizes", "unclear"),
    [
        ({"fsdp": 4}, "'fsdp'"),
        ({"replicate": 2, "shard": 2, "tp": 2}, "'replicate', 'shard'"),
        ({"dp": 2, "batch": 2}, "'batch'"),
    ],
)
def test_a_mesh_that_does_not_say_what_divides_the_data_is_refused(sizes, unclear):
    """Each rank along these dimensions would otherwise train on the same samples, silently."""
    where = {"mesh": {name: (1, size) for name, size in sizes.items()}}
    message = rf"data_over must be given, .* {re.escape(str(tuple(sizes)))} .* whether {unclear} do"
    with pytest.raises(ValueError, match=message):
        fastseed.Seeder(42, **where)
    names = tuple(name for name in sizes if name != "tp")
    s = fastseed.Seeder(42, **where, data_over=names)
    assert s.data_world_size == math.prod(sizes[name] for name in names)
    assert fastseed.Seeder(42, **where, data_over=()).data_world_size == 1


def test_usual_names_of_dimensions_say_what_divides_the_data():
    sizes = {"dp_shard": 2, "tp": 2, "pp": 2, "cp": 2, "ep": 2, "alone": 1}
    s = fastseed.Seeder(42, mesh={name: (size - 1, size) for name, size in sizes.items()})
    assert (s.data_rank, s.data_world_size) == (1, 2)


def saved_by_two(distinct_over, where=None):
    """Return exact states of two ranks, and the random numbers that follow."""
    states, after = {}, None
    for rank in range(2):
        s = seeder(rank=rank, world_size=2, distinct_over=distinct_over, mesh=where and where(rank))
        s.reseed(1, 2)
        torch.rand(3), np.random.random()
        states.update(saved_and_loaded(s.state_dict(rng=True)))
        after = [torch.rand(3).tolist(), np.random.random()]
    return states, after


def test_a_new_rank_continues_streams_that_all_ranks_share():
    """At the beginning of the scope it would draw other numbers than they."""
    states, after = saved_by_two(distinct_over=())
    for rank in range(4):
        s = seeder(rank=rank, world_size=4, distinct_over=())
        s.load_state_dict(states)
        assert [torch.rand(3).tolist(), np.random.random()] == after


def test_a_new_rank_takes_only_streams_that_all_ranks_share(caplog):
    """NumPy's here; and nothing where the rules of the job or of this rank differ."""
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
        s.move(1, 2, 0)
        assert loaded == (np.random.random(), torch.rand(3).tolist())
    assert not torch.equal(first, torch.tensor(loaded[1]))


def test_the_states_of_one_rank_serve_all_that_share_them():
    states, after = saved_by_two((), lambda rank: {"tp": (rank, 2)})
    alone = {key: held for key, held in states.items() if not key.startswith("rng.1.")}
    s = seeder(rank=1, world_size=2, distinct_over=(), mesh={"tp": (1, 2)})
    s.load_state_dict(alone)
    assert [torch.rand(3).tolist(), np.random.random()] == after


def test_exact_states_without_a_mesh_are_not_taken_into_one(caplog):
    s = seeder(rank=2, world_size=4)
    s.reseed(1, 2)
    held = s.state_dict(rng=True)
    assert not any("process.mesh" in key for key in held)
    of_rank(2, HERE, 4).load_state_dict(held)
    assert "are dropped: they are of mesh None, and this process has mesh [" in caplog.text


@pytest.mark.parametrize("damaged", [b"[[1", 3, None, torch.zeros(3)])
def test_a_mesh_of_another_kind_in_a_state_is_refused(damaged):
    states, _ = saved_by_two((), lambda rank: {"tp": (rank, 2)})
    assert "rng.1.process.mesh" in states
    s = seeder(rank=1, world_size=2, mesh={"tp": (1, 2)})
    with pytest.raises(ValueError, match=r"\['rng\.1\.process\.mesh'\] must be a 1-D uint8 tensor"):
        s.load_state_dict({**states, "rng.1.process.mesh": damaged})


@pytest.mark.parametrize("text", [b"", b"[[1", b"\xff\xfe"])
def test_exact_states_of_a_mesh_whose_text_is_damaged_are_dropped(text, caplog):
    """The text is compared and never parsed: the generators begin in the scope, with a warning."""
    states, _ = saved_by_two((), lambda rank: {"tp": (rank, 2)})
    damaged = torch.tensor(list(text), dtype=torch.uint8)
    s = seeder(rank=1, world_size=2, distinct_over=(), mesh={"tp": (1, 2)})
    s.load_state_dict({**states, "rng.1.process.mesh": damaged})
    assert "the exact states of rank 1 are dropped: they are of mesh" in caplog.text
