"""Ranks that do not agree, or do not come, are named on every rank, in time. Four gloo ranks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from helpers.support import SCRIPTS, clean_environment, free_port, seeder

import fastseed
from fastseed.distributed import agreement
from fastseed.seeder import api

ALL = range(4)  # rank 2 is the odd one
PREFIX = "fastseed.verify_agreement: "


def run_ranks(folder, case, ranks, **environment):
    """What each of these ranks of ``scripts/agreement_ranks.py`` found, and what it printed."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPTS / "agreement_ranks.py", case, folder],
            env=clean_environment(RANK=str(rank), OMP_NUM_THREADS="1", **where, **environment),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        errors = [process.communicate(timeout=100)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks, errors
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Each rank's findings in all cases, with the usual store."""
    return run_ranks(tmp_path_factory.mktemp("ranks"), "cases", 4)


def test_ranks_that_agree_go_on(ranks):
    for rank in ranks:
        assert rank["agree"] == ["agreed"] * 60
        assert rank["no generator moved"]
        assert rank["agree again"] == rank["after a bad argument"] == "agreed"
    keys = ranks[0]["keys"]
    assert max(keys) - min(keys) < 20, "the store fills up"


@pytest.mark.parametrize(
    ("case", "usual", "odd"),
    [
        ("master_seed", "master_seed is 42", "43"),
        ("scheme", "scheme is 'philox-v1'", "'fwr13y'"),
        ("world_size", "world_size is 4", "8"),
        ("fork", "fork is 'inherit'", "'reseed'"),
        ("scope", "scope is epoch 7, step 0, task 1", "epoch 8, step 0, task 1"),
        ("registered", "registered is ['everywhere']", "with ['only here'] and without ['everywh"),
        ("shared", "registered is ['everywhere', 'mine']", "with ['mine (shared)'] and without"),
        ("version", "version is '1.0.0'", "'0.0.9'"),
        ("derivation", "derivation is 1", "2"),
        ("mesh", "mesh is dp 2, tp 2", "dp 4, tp 1"),
        ("two fields", "master_seed is 42", "43"),
        ("two fields", "world_size is 4", "8"),
    ],
)
def test_what_differs_and_where_is_said_on_every_rank(ranks, case, usual, odd):
    (told,) = {rank[case] for rank in ranks}
    assert told.startswith(f"RuntimeError: {PREFIX}all ranks must agree, but ")
    assert f"{usual} on ranks 0, 1, 3 but {odd}" in told and "on rank 2" in told
    assert told.count(" but ") == 1 + (2 if case == "two fields" else 1)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("same rank", "each must be another rank to init, and rank 0 is told on ranks 0, 2 ("),
        ("same place", "must have its own place in the mesh, and [0, 0] is told on ranks 0, 2 ("),
        ("alone", "each must be another rank to init, and rank 0 is told on ranks 0, 1, 2, 3 ("),
    ],
)
def test_ranks_that_take_themselves_for_the_same_one_are_told(ranks, case, says):
    """They agree about everything else, and would draw the same."""
    (told,) = {rank[case] for rank in ranks}
    assert told.startswith(f"RuntimeError: {PREFIX}all ranks must agree, but each must ")
    assert says + "call init after init_process_group, or give it each rank's own rank=" in told


def test_rank_that_does_not_come_is_named_after_the_time_out(ranks):
    for late, absent in (("late", 2), ("first late", 0)):
        message = (
            f"TimeoutError: {PREFIX}rank {absent} did not call it within 1.5 seconds of the "
            "others; look there for what went wrong first"
        )
        for rank in ALL:
            told, seconds = ranks[rank][late]
            assert told == message, (late, rank)  # also where it comes in the end
            if rank != absent:
                assert seconds >= 1.4


def test_all_is_well_after_a_late_rank(ranks):
    assert {rank["after a late one"] for rank in ranks} == {"agreed"}
    assert {rank["after the first was late"] for rank in ranks} == {"agreed"}


@pytest.mark.parametrize(
    ("case", "odd", "own"),
    [
        ("bad argument", 2, f"ValueError: {PREFIX}timeout must be in (0, 86400], got -1.0"),
        (
            "bad argument of the first", 0,
            f"TypeError: {PREFIX}timeout must be a number of seconds, got '1' of type str",
        ),
        ("no init", 2, f"RuntimeError: {PREFIX}call fastseed.init(...) first"),
    ],
)  # fmt: skip
def test_rank_that_raises_is_heard_of_at_once(ranks, case, odd, own):
    assert ranks[odd][case][0] == own
    for rank in set(ALL) - {odd}:
        told, seconds = ranks[rank][case]
        assert f"rank {odd} cannot tell: {own.split(': ', 1)[1]}" in told
        assert seconds < 25  # of a time-out of 30


def test_subgroups_agree_for_themselves(ranks):
    assert [rank["subgroup"] for rank in ranks[:2]] == ["agreed"] * 2
    for rank in ranks[2:]:
        assert "epoch 9, step 0, task 1 on rank 2 but epoch 7" in rank["subgroup"]
    assert {rank["not in it"] for rank in ranks} == {"agreed"}


def test_wrong_group_is_an_error(ranks):
    for rank in ranks:
        assert rank["wrong group"][0] == (
            f"TypeError: {PREFIX}group must be a torch.distributed process group, "
            "got 'world' of type str"
        )


def test_without_a_group_it_returns(ranks):
    for rank in ranks:
        assert rank["without a group"][0] == "agreed"
        assert rank["before init, without a group"][0].endswith("call fastseed.init(...) first")


def test_processes_that_ended_hang_nobody(ranks):
    """Rank 0 keeps the store: with it the others lose that too, and say so."""
    for rank in (0, 2, 3):
        told, seconds = ranks[rank]["one ended"]
        assert told.startswith(f"TimeoutError: {PREFIX}rank 1 did not call it within 1.5 seconds")
        assert seconds < 60
    for rank in (2, 3):
        told, seconds = ranks[rank]["the store ended"]
        assert f"{PREFIX}the store of torch.distributed does not answer" in told
        assert seconds < 60


def test_store_in_a_file_does_as_well(tmp_path):
    """No server, and no operations but the basic ones."""
    found = run_ranks(tmp_path, "short", 2, FASTSEED_INIT=f"file://{tmp_path / 'store'}")
    assert {rank["agree again"] for rank in found} == {"agreed"}
    (told,) = {rank["master_seed"] for rank in found}
    assert "master_seed is 42 on rank 0 but 43 on rank 1" in told
    (told,) = {rank["late"][0] for rank in found}
    assert "rank 1 did not call it within 1 seconds" in told


# ---------------------------------------------------------------- in one process


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 86401, "1", None, True])
def test_wrong_timeout_is_an_error(timeout):
    fastseed.init(42)
    with pytest.raises((TypeError, ValueError), match=r"verify_agreement: timeout must be "):
        fastseed.distributed.verify_agreement(timeout=timeout)


def records(n, **odd):
    """What ``n`` ranks say of themselves, the last one differently."""
    api._seeder = seeder()
    same = agreement._describe(api._seeder)
    return [dict(same) for _ in range(n - 1)] + [{**same, **odd}]


def test_every_field_is_compared():
    for field in set(records(1)[0]) - set(agreement._OWN):
        (told,) = agreement.compare([3, 5, 8], records(3, **{field: "another"}))
        assert told.startswith(f"{field} is ") and "on ranks 3, 5 but 'another' on rank 8" in told
    assert agreement.compare([3, 5, 8], records(3)) == []


def test_dimensions_may_be_said_in_any_way():
    """The order of a set is another one in each process."""
    sizes = {"dp": (0, 2), "tp": (0, 2), "pp": (0, 2)}
    ways = [("dp", "tp"), ["tp", "dp"], {"tp", "dp"}, frozenset({"dp", "tp"})]
    ways += [{"numpy": w, "a": ("pp",)} for w in ways] + [{"a": ["pp"], "numpy": ways[1]}]
    told = [
        agreement._describe(seeder(world_size=8, mesh=sizes, distinct_over=way))["distinct_over"]
        for way in ways
    ]
    assert len(set(told[:4])) == len(set(told[4:])) == 1 and told[0] != told[4]


def test_the_value_of_most_ranks_stands_first():
    found = [{"version": v} for v in ("a", "b", "b", "c", "a", "b")]
    (told,) = agreement.compare(range(6), found)
    assert told.startswith("version is 'b' on ranks 1, 2, 5 but 'a' on ranks 0, 4, 'c' on rank 3")


def test_messages_of_many_ranks_are_short():
    found = [{"version": "a" if k % 2 else "b"} for k in range(10_000)]
    (told,) = agreement.compare(range(10_000), found)
    assert "and 4984 more" in told and len(told) < 400
