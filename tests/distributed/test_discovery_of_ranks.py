"""The rank of this process, and one master seed for all ranks: two gloo ranks, and simulated."""

import logging
import sys
import types

import pytest
import torch
import torch.distributed as dist
from helpers.ranks import ranks
from helpers.support import seeder, snapshot
from torch.testing._internal.distributed.fake_pg import FakeStore

import fastseed
from fastseed.derivation import context
from fastseed.distributed import rendezvous

# ---------------------------------------------------------------- two real ranks


def initialize(*arguments, init=fastseed.init, **more):
    """Return the master seed that init finds on this rank and its warnings, or its error."""
    said = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("fastseed").addHandler(handler)
    try:
        init(*arguments, **more)
    except (ValueError, RuntimeError) as error:
        return str(error)
    finally:
        logging.getLogger("fastseed").removeHandler(handler)
    assert (context.seeder.rank, context.seeder.world_size) == (dist.get_rank(), 2)
    return fastseed.get_master_seed(), said


def initialize_differently(name, values, arguments):
    """Call init with another value of one argument on each rank."""
    arguments = arguments | {name: values[dist.get_rank()]}
    return initialize(**arguments)


def initialize_as_fwr13y():
    """Return the master seed of fwr13y's scheme on this rank."""
    fastseed.pyt.init(scheme="fwr13y")
    fastseed.pyt.register_generator(print, shared=True)
    return fastseed.pyt.get_master_seed()


def test_none_is_agreed_on():
    (master, said), other = ranks(2, initialize, None)
    assert (master, said) == other and said == []
    (again, _), _ = ranks(2, initialize)
    assert again != master
    master, other = ranks(2, initialize_as_fwr13y)
    assert master == other < 2**31


@pytest.mark.parametrize(
    ("name", "values", "says", "odd"),
    [
        ("rank", [0, 2], "rank (from arguments) must be in [0, 1], got 2", 1),
        ("master_seed", [-1, 42], "master_seed must be in [0, 18446744073709551615], got -1", 0),
    ],
)
def test_an_invalid_argument_on_one_rank_is_an_error_on_every_rank(name, values, says, odd):
    more = {"world_size": 2} if name == "rank" else {}
    found = ranks(2, initialize_differently, name, values, {"master_seed": 42} | more)
    assert found[odd] == f"fastseed.init: {says}"
    others = f"fastseed.init: all ranks must agree, but rank {odd} failed: fastseed.init: {says}"
    assert found[1 - odd] == others


@pytest.mark.parametrize("values", [[40, 41], [42, None], [None, 42]])
def test_differing_seeds_are_an_error_on_every_rank(values):
    says = "master_seed is {} on rank 0 but {} on rank 1 (give init the same".format(*values)
    for found in ranks(2, initialize_differently, "master_seed", values, {}):
        assert found.startswith(f"fastseed.init: all ranks must agree, but {says}")


def test_node_local_ranks_are_corrected_with_a_warning():
    (_, first), (_, second) = ranks(2, initialize, 42, 2, 0)
    assert first == []
    (said,) = second
    assert said.startswith("fastseed.init: local_rank=0 of ngpus=2 were given, but torch.distrib")
    assert "rank 1 of 2" in said
    (_, first), _ = ranks(2, initialize, 42, 1, 0)  # one of one
    assert len(first) == 1


def reseed():
    """Return the states of the rank, and what a shared generator and its own one get."""
    fastseed.init(42)
    shared, own = [], []
    fastseed.register_generator(own.append)
    fastseed.register_generator(shared.append, shared=True)
    fastseed.reseed(1, 7)
    return snapshot(), shared, own


def test_states_are_those_of_the_rank_and_shared_streams_are_shared():
    found = ranks(2, reseed)
    for rank in range(2):
        fastseed.Seeder(42, rank=rank, world_size=2).reseed(1, 7)
        assert found[rank][0] == snapshot()
    (_, shared, own), (_, shared_too, other) = found
    assert shared == shared_too and own != other and own != shared


# ---------------------------------------------------------------- the rank of this process

LAUNCHERS = [
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
]


@pytest.fixture
def group(monkeypatch):
    """Pretends that torch.distributed was initialized: ``group(rank, size)``."""

    def pretend(rank, size):
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_rank", lambda: rank)
        monkeypatch.setattr(dist, "get_world_size", lambda group=None: size)
        monkeypatch.setattr(rendezvous, "has_group", lambda: True)

    return pretend


def launched(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def found():
    s = fastseed.Seeder(42)
    return s.rank, s.world_size


def test_alone_is_rank_zero_of_one():
    assert found() == (0, 1)


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda names: names[0])
def test_rank_from_a_launchers_environment(monkeypatch, launcher):
    monkeypatch.setenv(launcher[0], "3")
    assert found() == (0, 1)  # one without the other does not count
    monkeypatch.setenv(launcher[1], "8")
    assert found() == (3, 8)
    monkeypatch.setenv(launcher[2], "")  # empty is unset
    assert fastseed.distributed.discover_rank().local_rank is None
    monkeypatch.setenv(launcher[0], "")
    assert found() == (0, 1)


def test_the_one_process_of_sbatch_is_alone(monkeypatch):
    """It has the number of tasks that its job may start; ``srun`` sets that of a step."""
    launched(monkeypatch, SLURM_PROCID="0", SLURM_NTASKS="8", SLURM_LOCALID="0")
    assert found() == (0, 1)


def test_launchers_in_their_order(monkeypatch):
    for rank, names in reversed(list(enumerate(LAUNCHERS))):
        monkeypatch.setenv(names[0], str(rank))
        monkeypatch.setenv(names[1], str(10 + rank))
        assert found() == (rank, 10 + rank)


def test_torch_distributed_comes_before_the_environment(monkeypatch, group):
    launched(monkeypatch, RANK="3", WORLD_SIZE="8")
    group(2, 4)
    assert found() == (2, 4)


def test_horovod_when_it_is_initialized(monkeypatch):
    horovod = types.SimpleNamespace(is_initialized=bool, rank=lambda: 5, size=lambda: 6)
    monkeypatch.setitem(sys.modules, "horovod.torch", horovod)
    assert found() == (0, 1)
    horovod.is_initialized = lambda: True
    assert found() == (5, 6)


def test_a_worker_of_ray_train_does_not_use_inherited_variables(monkeypatch, group):
    launched(monkeypatch, SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="8")

    def refuse():
        raise RuntimeError("`get_context` cannot be used outside of a Ray Train training function.")

    driver = types.SimpleNamespace(get_context=refuse)
    monkeypatch.setitem(sys.modules, "ray.train", driver)
    assert found() == (0, 8)
    context = types.SimpleNamespace(
        get_world_rank=lambda: 3, get_world_size=lambda: 4, get_local_rank=lambda: 1
    )
    monkeypatch.setitem(
        sys.modules, "ray.train", types.SimpleNamespace(get_context=lambda: context)
    )
    assert fastseed.distributed.discover_rank() == (3, 4, "ray.train", 1)
    group(2, 5)
    assert found() == (2, 5)


@pytest.mark.parametrize(
    ("rank", "size", "says"),
    [
        ("x", "8", "environment variable RANK must be an integer, got 'x'"),
        ("1", "8.0", "environment variable WORLD_SIZE must be an integer, got '8.0'"),
        ("8", "8", r"rank \(from RANK/WORLD_SIZE\) must be in \[0, 7\], got 8"),
        ("-1", "8", r"rank .* must be in \[0, 7\], got -1"),
        ("0", "0", r"world_size .* must be in \[1, 16777215\], got 0"),
        ("0", "16777216", r"world_size .* must be in \[1, 16777215\], got 16777216"),
    ],
)
def test_invalid_variables(monkeypatch, rank, size, says):
    launched(monkeypatch, RANK=rank, WORLD_SIZE=size)
    with pytest.raises(ValueError, match="^fastseed.init: " + says):
        fastseed.init(42)


def test_arguments_rank_and_world_size_are_used_as_given(monkeypatch, caplog):
    launched(monkeypatch, RANK="3", WORLD_SIZE="8")
    s = fastseed.Seeder(42, rank=5, world_size=6)
    assert (s.rank, s.world_size) == (5, 6)
    s = fastseed.Seeder(42, rank=5)
    assert (s.rank, s.world_size) == (5, 8)
    s = fastseed.Seeder(42, world_size=4)
    assert (s.rank, s.world_size) == (3, 4)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("ngpus", "local_rank", "corrected"),
    [
        (16, 3, True),  # the documented trap: the world's size, the node's rank
        (8, 3, True),  # both are the node's
        (16, 11, False),
        (None, 3, True),
        (16, None, False),
        (8, None, True),
        (32, 27, False),  # more than the environment knows of: processes it did not start
    ],
)
def test_node_local_trap(monkeypatch, caplog, ngpus, local_rank, corrected):
    # of two nodes with eight GPUs, GPU 3 of the second
    launched(monkeypatch, RANK="11", WORLD_SIZE="16")
    s = fastseed.Seeder(42, ngpus, local_rank)
    if ngpus == 32:
        assert (s.rank, s.world_size) == (27, 32)
    else:
        assert (s.rank, s.world_size) == (11, 16)
    assert len(caplog.records) == corrected
    if corrected:
        said = caplog.records[0].getMessage()
        assert said.startswith("fastseed.Seeder: local_rank=") and "rank 11 of 16" in said
        assert "nodes" in said


@pytest.mark.parametrize(
    ("local", "given", "rank"),
    [
        ("3", 3, 11),  # the rank within the node was passed for the global one
        ("0", 3, 3),  # a process spawned from task 0 of the node: the variables are not about it
    ],
)
@pytest.mark.parametrize("names", LAUNCHERS, ids=lambda names: names[0])
def test_rank_within_the_node_shows_which_process_the_environment_describes(
    monkeypatch, caplog, names, local, given, rank
):
    for name, value in zip(names, ("11", "16", local), strict=True):
        monkeypatch.setenv(name, value)
    s = fastseed.Seeder(42, 16, given)
    assert (s.rank, s.world_size) == (rank, 16)
    assert len(caplog.records) == 1


def test_node_local_trap_is_kept_under_the_legacy_scheme(monkeypatch, caplog):
    """As fwr13y does, bit for bit, with a warning."""
    launched(monkeypatch, RANK="11", WORLD_SIZE="16")
    fastseed.pyt.init(42, 16, 3, scheme="fwr13y")
    fastseed.pyt.reseed(1, 7)
    assert torch.initial_seed() == fastseed.pyt.SeedGen(42, 16, 3)(1, 7)
    assert "nodes repeat each other's seeds" in caplog.records[0].getMessage()


@pytest.mark.parametrize("argument", ["ngpus", "world_size"])
def test_a_world_size_without_a_rank_warns_where_nothing_shows_a_rank(
    monkeypatch, caplog, argument
):
    """Every process would be rank 0 and draw the same."""
    s = fastseed.Seeder(42, **{argument: 4})
    assert (s.rank, s.world_size) == (0, 4)
    (warning,) = caplog.messages
    assert warning.startswith("fastseed.Seeder: 4 ranks were given without a rank")
    caplog.clear()
    fastseed.Seeder(42, **{argument: 1})
    fastseed.Seeder(42, mesh={"dp": (1, 4)})
    launched(monkeypatch, RANK="1", WORLD_SIZE="4")
    assert fastseed.Seeder(42, **{argument: 4}).rank == 1
    assert caplog.messages == []


# ---------------------------------------------------------------- one master seed


def started(*arguments, **more):
    fastseed.init(*arguments, **more)
    return fastseed.derivation.context.seeder


def test_world_that_is_not_the_groups_warns_and_refuses_shared(group, caplog):
    group(0, 2)
    s = started(None, rank=0, world_size=4)
    assert "no process group of 4 ranks" in caplog.records[0].getMessage()
    with pytest.raises(RuntimeError, match=r"ranks cannot share a stream before they agree"):
        s.register_generator(print, True)
    s.register_generator(print)


def test_one_rank_agrees_with_itself(caplog):
    s = started(rank=0, world_size=1)
    assert caplog.records == []
    s.register_generator(seen := [].append, shared=True)
    s.unregister_generator(seen)


@pytest.mark.parametrize(
    ("given", "size", "raises"),
    [
        ({}, 2, True),
        ({}, 1, False),
        ({"rank": 0, "world_size": 1}, 2, False),
        ({"ngpus": 1, "local_rank": 0}, 2, False),
        ({"mesh": {"dp": (0, 1)}}, 2, False),
    ],
)
def test_a_group_that_comes_after_init(given, size, raises):
    fastseed.init(42, **given)
    fastseed.reseed(1)
    before = torch.get_rng_state()
    dist.init_process_group("fake", store=FakeStore(), rank=size - 1, world_size=size)
    try:
        loader = fastseed.data.Loader(range(4), 2)
        calls = (
            lambda: fastseed.reseed(1, 1),
            lambda: next(iter(loader)),
            lambda: next(iter(fastseed.data.steps(loader, epochs=1))),
        )
        for call in calls:
            if raises:
                with pytest.raises(RuntimeError, match=r"init must be called after init_process"):
                    call()
                assert torch.get_rng_state().equal(before)
            else:
                call()
        assert found() == (size - 1, size)
    finally:
        dist.destroy_process_group()


def test_given_master_seed_needs_no_group():
    seeder(42, rank=3, world_size=8).register_generator(print, shared=True)
