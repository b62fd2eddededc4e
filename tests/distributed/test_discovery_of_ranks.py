"""Which rank am I, and do all ranks use one master seed? With two gloo ranks, and simulated."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import types

import pytest
import torch.distributed as dist
from helpers.support import SCRIPTS, clean_environment, free_port, run_python, seeder

import fastseed
from fastseed.distributed import discovery

# ---------------------------------------------------------------- two real ranks


def by_torchrun(folder):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run_python(*launcher, SCRIPTS / "agree.py", folder, OMP_NUM_THREADS="1")


def by_hand(folder):
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPTS / "agree.py"), str(folder)],
            env=clean_environment(RANK=str(rank), OMP_NUM_THREADS="1", **where),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors


@pytest.fixture(scope="module", params=[by_torchrun, by_hand], ids=["torchrun", "by hand"])
def ranks(request, tmp_path_factory):
    """What the two ranks of ``scripts/agree.py`` found."""
    folder = tmp_path_factory.mktemp("ranks")
    request.param(folder)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_none_is_agreed_on(ranks):
    for case in ("None", "None again", "None fwr13y"):
        a, b = (rank[case] for rank in ranks)
        assert a["master"] == b["master"] and a["warnings"] == b["warnings"] == []
    assert ranks[0]["None"]["master"] != ranks[0]["None again"]["master"]
    assert ranks[0]["None fwr13y"]["master"] < 2**31


@pytest.mark.parametrize(
    ("case", "says", "odd"),
    [
        ("rank out of range", "rank must be in [0, 2), got 2 (from arguments)", 1),
        ("wrong fork", "fork must be None or one of ('inherit', 'reseed'), got 'again'", 0),
        ("wrong scheme", "scheme must be one of ('philox-v1', 'fwr13y'), got 'x'", 1),
    ],
)
def test_an_argument_that_one_rank_alone_has_wrong_hangs_nobody(ranks, case, says, odd):
    assert ranks[odd][case]["error"] == f"fastseed.init: {says}"
    assert ranks[1 - odd][case]["error"] == f"fastseed.init: {says} (on rank {odd})"


def test_predecessor_does_not_agree(ranks):
    assert ranks[0]["predecessor"] != ranks[1]["predecessor"]


def test_places_are_discovered(ranks):
    for case in ("alone/None", "alone/42", "None", "42"):
        assert [rank[case]["place"] for rank in ranks] == [[0, 2], [1, 2]]


@pytest.mark.parametrize(
    ("case", "values"),
    [
        ("differing", "got 40 on rank 0 and 41 on rank 1"),
        ("only rank 0", "got 42 on rank 0 and None on rank 1"),
        ("only rank 1", "got None on rank 0 and 42 on rank 1"),
    ],
)
def test_differing_seeds_are_an_error_on_every_rank(ranks, case, values):
    for rank in ranks:
        assert rank[case]["error"] == (
            f"fastseed.init: master_seed must be the same on every rank, {values}"
        )


def test_bad_seed_is_an_error_on_every_rank(ranks):
    assert all("master_seed must be in" in rank["negative"]["error"] for rank in ranks)


def test_node_local_ranks_are_corrected_with_a_warning(ranks):
    for case in ("node-local rank", "one of one"):
        assert [rank[case]["place"] for rank in ranks] == [[0, 2], [1, 2]], case
    assert ranks[0]["node-local rank"]["warnings"] == []
    (said,) = ranks[1]["node-local rank"]["warnings"]
    assert said.startswith("fastseed.init: local_rank=0 of ngpus=2 were given, but torch.distrib")
    assert "rank 1 of 2" in said
    assert len(ranks[0]["one of one"]["warnings"]) == 1


def test_shared_streams_are_shared_and_own_ones_are_not(ranks):
    for case in ("None/shared", "42/shared", "alone/42/shared"):
        a, b = (rank[case] for rank in ranks)
        assert a["shared"] == b["shared"] and a["own"] != b["own"], case
        assert a["shared"] != a["own"]


def test_without_a_group_none_is_not_agreed_and_shared_is_refused(ranks):
    masters = [rank["alone/None"]["master"] for rank in ranks]
    assert masters[0] != masters[1]
    for rank in ranks:
        (said,) = rank["alone/None"]["warnings"]
        assert said.startswith("fastseed.init: master_seed is None and there is no process group")
        assert "of 2 ranks" in said and "init_process_group first" in said
        refused = rank["alone/None/shared"]["error"]
        assert refused.startswith("fastseed.register_generator: shared must be False here")
        assert "init_process_group" in refused
        assert rank["alone/42"]["warnings"] == []


def test_states_are_those_of_the_rank_whoever_started_it(ranks):
    """A process that says which rank it is has the states of the one that discovered it."""
    own = [rank["own states"] for rank in ranks]
    assert own == ranks[0]["states of both"] == ranks[1]["states of both"]
    assert own[0] != own[1]


# ---------------------------------------------------------------- who am I

LAUNCHERS = [
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
]


@pytest.fixture
def group(monkeypatch):
    """Pretends that torch.distributed was initialised: ``group(rank, size, gathered)``."""

    def pretend(rank, size, gathered=None):
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_rank", lambda: rank)
        monkeypatch.setattr(dist, "get_world_size", lambda: size)

        def gather(out, mine):
            out[:] = gathered(mine) if gathered else [mine] * size

        monkeypatch.setattr(dist, "all_gather_object", gather)

    return pretend


def place():
    s = fastseed.Seeder(42)
    return s.rank, s.world_size


def test_alone_is_rank_zero_of_one():
    assert place() == (0, 1)


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda names: names[0])
def test_rank_from_a_launchers_environment(monkeypatch, launcher):
    monkeypatch.setenv(launcher[0], "3")
    assert place() == (0, 1)  # one without the other says nothing
    monkeypatch.setenv(launcher[1], "8")
    assert place() == (3, 8)


def test_launchers_in_their_order(monkeypatch):
    for rank, names in reversed(list(enumerate(LAUNCHERS))):
        monkeypatch.setenv(names[0], str(rank))
        monkeypatch.setenv(names[1], str(10 + rank))
        assert place() == (rank, 10 + rank)


def test_torch_distributed_is_believed_before_the_environment(monkeypatch, group):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    group(2, 4)
    assert place() == (2, 4)


def test_horovod_when_it_is_initialised(monkeypatch):
    horovod = types.SimpleNamespace(
        is_initialized=lambda: False, rank=lambda: 5, size=lambda: 6
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "horovod.torch", horovod)
    assert place() == (0, 1)
    horovod.is_initialized = lambda: True
    assert place() == (5, 6)


@pytest.mark.parametrize(
    ("rank", "size", "says"),
    [
        ("x", "8", "environment variable RANK must be an integer, got 'x'"),
        ("1", "", "environment variable WORLD_SIZE must be an integer, got ''"),
        ("8", "8", r"rank must be in \[0, 8\), got 8 \(from RANK/WORLD_SIZE\)"),
        ("-1", "8", r"rank must be in \[0, 8\), got -1"),
        ("0", "0", r"world_size must be in \[1, 16777215\], got 0"),
        ("0", "16777216", r"world_size must be in \[1, 16777215\], got 16777216"),
    ],
)
def test_nonsense_in_the_environment(monkeypatch, rank, size, says):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ValueError, match="^fastseed.init: " + says):
        fastseed.init(42)


def test_arguments_rank_and_world_size_are_believed(monkeypatch, caplog):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with caplog.at_level(logging.WARNING, logger="fastseed"):
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
    monkeypatch.setenv("RANK", "11")  # of two nodes with eight GPUs, GPU 3 of the second
    monkeypatch.setenv("WORLD_SIZE", "16")
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        s = fastseed.Seeder(42, ngpus, local_rank)
    if ngpus == 32:
        assert (s.rank, s.world_size) == (27, 32)
    else:
        assert (s.rank, s.world_size) == (11, 16)
    assert len(caplog.records) == corrected
    if corrected:
        said = caplog.records[0].getMessage()
        assert said.startswith("fastseed.init: local_rank=") and "rank 11 of 16" in said
        assert "nodes" in said


@pytest.mark.parametrize(
    ("local", "given", "rank"),
    [
        ("3", 3, 11),  # the rank within the node was passed for the global one
        ("0", 3, 3),  # a process spawned from task 0 of the node: the variables are not about it
    ],
)
@pytest.mark.parametrize(
    "names",
    [
        ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ],
)
def test_rank_within_the_node_tells_whom_the_environment_speaks_of(
    monkeypatch, caplog, names, local, given, rank
):
    for name, value in zip(names, ("11", "16", local), strict=True):
        monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        s = fastseed.Seeder(42, 16, given)
    assert (s.rank, s.world_size) == (rank, 16)
    assert len(caplog.records) == 1


def test_node_local_trap_is_kept_under_the_legacy_scheme(monkeypatch, caplog):
    """Bit for bit what the predecessor did, with a warning."""
    monkeypatch.setenv("RANK", "11")
    monkeypatch.setenv("WORLD_SIZE", "16")
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        s = fastseed.Seeder(42, 16, 3, scheme="fwr13y")
    assert (s.rank, s.world_size) == (3, 16)
    assert "nodes repeat each other's seeds" in caplog.records[0].getMessage()


# ---------------------------------------------------------------- do we agree


def test_the_seed_that_rank_zero_drew_is_everyones(group):
    group(2, 3, lambda mine: [(None, 77, None), (None, None, None), mine])
    s = fastseed.Seeder()
    assert s.master_seed == 77
    s.register_generator(print, shared=True)


def test_only_rank_zero_draws(group, monkeypatch):
    sent = []
    group(1, 2, lambda mine: sent.append(mine) or [(None, 5, None), mine])
    monkeypatch.setattr(discovery, "draw_master_seed", lambda bits: pytest.fail("drew"))
    assert fastseed.Seeder().master_seed == 5
    assert sent == [(None, None, None)]


def test_a_bad_master_seed_is_an_error_on_every_rank(group):
    """The rank that has it enters the collective too, or the others would wait for it."""
    sent = []
    group(1, 2, lambda mine: sent.append(mine) or [(5, None, None), mine])
    with pytest.raises(ValueError, match=r"master_seed must be in \[0, 18446744073709551615\]"):
        fastseed.Seeder(-1)
    group(0, 2, lambda mine: [mine, *sent])
    with pytest.raises(ValueError, match=r"master_seed must be in .* got -1 \(on rank 1\)"):
        fastseed.Seeder(5)


def test_numpy_master_seeds_compare_by_value(group):
    import numpy as np

    group(1, 2, lambda mine: [(42, None, None), mine])
    assert fastseed.Seeder(np.uint64(42)).master_seed == 42


def test_world_that_is_not_the_groups_warns_and_refuses_shared(group, caplog):
    group(0, 2)
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        s = fastseed.Seeder(None, rank=0, world_size=4)
    assert "no process group of 4 ranks" in caplog.records[0].getMessage()
    with pytest.raises(RuntimeError, match=r"shared must be False here: master_seed was None"):
        s.register_generator(print, True)
    s.register_generator(print)


def test_one_rank_agrees_with_itself(caplog):
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        s = fastseed.Seeder(rank=0, world_size=1)
    assert caplog.records == []
    s.register_generator(seen := [].append, shared=True)
    s.unregister_generator(seen)


def test_given_master_seed_needs_no_group():
    seeder(42, rank=3, world_size=8).register_generator(print, shared=True)
