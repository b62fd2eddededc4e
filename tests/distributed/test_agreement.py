"""Ranks that do not agree, or are missing, are named on every rank, in time. Four gloo ranks."""

from __future__ import annotations

import pytest
from helpers.processes import run_ranks
from helpers.support import seeder

import fastseed
from fastseed.derivation import context
from fastseed.distributed import agreement, rendezvous

PREFIX = "fastseed.distributed.verify_agreement: "


@pytest.fixture(scope="module")
def ranks():
    """Return the results of each rank, with the usual store."""
    return run_ranks("agreement_ranks.py", 4)


def test_ranks_that_agree_return(ranks):
    for rank in ranks:
        assert rank["agree"] == ["agreed"] * 30
        assert rank["no generator moved"]
        assert rank["agree again"] == rank["after an invalid argument"] == "agreed"
    keys = ranks[0]["keys"]
    assert max(keys) - min(keys) < 20, "the store fills up"


@pytest.mark.parametrize(
    ("case", "usual", "odd"),
    [
        ("master_seed", "master_seed is 42", "43"),
        ("on_os_fork", "on_os_fork is 'inherit'", "'reseed'"),
        ("scope", "scope is epoch 7, step 0, task 1", "epoch 8, step 0, task 1"),
        ("registered", "registered is ['everywhere']", "['only here']"),
        ("version", "version is ", "'0.0.9'"),
        ("two fields", "master_seed is 42", "43"),
        ("two fields", "on_os_fork is 'inherit'", "'reseed'"),
    ],
)
def test_every_rank_names_the_ranks_that_differ(ranks, case, usual, odd):
    (message,) = {rank[case] for rank in ranks}
    assert message.startswith(f"RuntimeError: {PREFIX}all ranks must agree, but ")
    assert usual in message and f" on ranks 0, 1, 3 but {odd}" in message
    assert "on rank 2" in message
    assert message.count(" but ") == 1 + (2 if case == "two fields" else 1)


def test_ranks_that_are_given_the_same_rank_or_coordinates_are_named(ranks):
    (same,) = {rank["same rank"] for rank in ranks}
    assert "rank must be unique, but 0 is that of ranks 0, 2 (call init after init_process" in same
    (same,) = {rank["same coordinates"] for rank in ranks}
    assert "mesh coordinates must be unique, but [0, 0] is that of ranks 0, 2 (" in same


@pytest.mark.parametrize(("case", "absent"), [("late", 2), ("first late", 0)])
def test_a_late_rank_is_named_after_the_timeout(ranks, case, absent):
    message = (
        f"TimeoutError: {PREFIX}rank {absent} did not call it within 1 seconds of the others; "
        "look there for the cause"
    )
    for number, rank in enumerate(ranks):
        result, seconds = rank[case]
        assert result == message, number  # on the late rank too
        assert number == absent or 0.9 <= seconds < 10
        assert rank[f"after {case}"] == "agreed"


def test_restarted_ranks_do_not_read_the_keys_of_killed_ones(ranks):
    assert {rank["restarted"] for rank in ranks} == {"agreed"}


@pytest.mark.parametrize(
    ("case", "odd", "own"),
    [
        ("invalid timeout", 2, f"ValueError: {PREFIX}timeout must be in [0.001, 86400], got -1.0"),
        (
            "invalid timeout of the first", 0,
            f"TypeError: {PREFIX}timeout must be a number, got '1' of type str",
        ),
        ("no init", 2, f"RuntimeError: {PREFIX}call fastseed.init(...) first"),
    ],
)  # fmt: skip
def test_the_error_of_one_rank_reaches_the_others_at_once(ranks, case, odd, own):
    for number, rank in enumerate(ranks):
        result, seconds = rank[case]
        assert seconds < 25  # of a time limit of 30
        if number == odd:
            assert result == own
        else:
            assert f"rank {odd} failed: {own.split(': ', 1)[1]}" in result


def test_subgroups_agree_for_themselves(ranks):
    assert [rank["subgroup"] for rank in ranks[:2]] == ["agreed"] * 2
    for rank in ranks[2:]:
        assert "epoch 9, step 0, task 1" in rank["subgroup"]
    assert {rank["not in it"] for rank in ranks} == {"agreed"}
    for rank in ranks:
        assert rank["invalid group"][0].startswith(f"TypeError: {PREFIX}group must be a torch.dist")


def test_several_ranks_without_a_group_are_an_error(ranks):
    """It would return as if they agreed."""
    for rank in ranks:
        assert rank["without a group"][0] == (
            f"RuntimeError: {PREFIX}call torch.distributed.init_process_group first: there are 4 "
            "ranks, and no process group in which to compare them"
        )
        assert rank["before init, without a group"][0].endswith("call fastseed.init(...) first")


def test_init_agrees_on_a_master_seed_and_names_a_rank_that_ended(ranks):
    for number, rank in enumerate(ranks):
        chosen, differing, invalid = rank["init"]
        assert chosen == ranks[0]["init"][0] and isinstance(chosen, int)
        assert differing.endswith(
            "must be the same on every rank, got 42 on rank 0 and 43 on rank 2"
        )
        assert "master_seed must be in" in invalid
        assert invalid.endswith("got -1" + (" (on rank 2)" if number != 2 else ""))
        if number != 1:
            message, seconds = rank["init without rank 1"]
            assert message.startswith(
                "TimeoutError: fastseed.init: rank 1 did not call it within 5 s"
            )
            assert seconds < 20  # the time-out of the process group, and the grace


def test_ended_and_stopped_processes_do_not_hang_the_others(ranks):
    for number in (0, 2, 3):
        message, seconds = ranks[number]["one ended"]
        assert message.startswith(f"TimeoutError: {PREFIX}rank 1 did not call it within 1 seconds")
        assert seconds < 10
    for number in (2, 3):  # rank 0 keeps the store
        message, seconds = ranks[number]["rank 0 stopped"]
        assert message.startswith(f"TimeoutError: {PREFIX}the store of torch.distributed did not ")
        assert "rank 0" in message and seconds < 15
    for case in ("rank 0 ended", "init without rank 0"):
        message, seconds = ranks[2][case]
        assert "that keeps it (rank 0, unless" in message and seconds < 15


@pytest.mark.slow
def test_a_store_in_a_file_serves_too(tmp_path):
    """It has no server, and only the basic operations."""
    found = run_ranks("agreement_ranks.py", 4, FASTSEED_INIT=f"file://{tmp_path / 'store'}")
    assert {rank["agree again"] for rank in found} == {"agreed"}
    (message,) = {rank["master_seed"] for rank in found}
    assert "master_seed is 42 on ranks 0, 1, 3 but 43 on rank 2" in message
    (message,) = {rank["late"][0] for rank in found}
    assert "rank 2 did not call it within 1 seconds" in message


# ---------------------------------------------------------------- in one process


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 86401, "1", None, True])
def test_an_invalid_timeout_is_an_error(timeout):
    fastseed.init(42)
    with pytest.raises((TypeError, ValueError), match=r"verify_agreement: timeout must be "):
        fastseed.distributed.verify_agreement(timeout=timeout)


def test_it_works_on_the_process_wide_seeder():
    with pytest.raises(RuntimeError, match=r"verify_agreement: call fastseed\.init"):
        fastseed.distributed.verify_agreement()
    fastseed.init(42)
    assert context.current("test") is fastseed.derivation.context.seeder
    fastseed.distributed.verify_agreement()


def test_every_field_is_compared():
    same = agreement.record_of(seeder())
    for field in set(same) - set(agreement._OWN):
        found = agreement.compare([3, 5, 8], [same, same, {**same, field: "another"}])
        assert len(found) == 1 and found[0].startswith(f"{field} is ")
        assert "on ranks 3, 5 but 'another' on rank 8" in found[0]
    assert agreement.compare([3, 5, 8], [same] * 3) == []


def test_distinct_over_can_be_written_in_any_way():
    sizes = {"dp": (0, 2), "tp": (0, 2), "pp": (0, 2)}
    ways = [("dp", "tp"), ["tp", "dp"], {"tp", "dp"}, frozenset({"dp", "tp"})]
    ways += [{"numpy": w, "a": ("pp",)} for w in ways] + [{"a": ["pp"], "numpy": ways[1]}]
    found = [
        seeder(world_size=8, mesh=sizes, distinct_over=way)._rank_fields.rules() for way in ways
    ]
    assert len(set(found[:4])) == len(set(found[4:])) == 1 and found[0] != found[4]


def test_the_value_of_most_ranks_comes_first_and_messages_are_short():
    records = [{"version": v} for v in ("a", "b", "b", "c", "a", "b")]
    (message,) = agreement.compare(list(range(6)), records)
    assert message.startswith(
        "version is 'b' on ranks 1, 2, 5 but 'a' on ranks 0, 4, 'c' on rank 3"
    )
    records = [{"version": "a" if k % 2 else "b"} for k in range(10_000)]
    (message,) = agreement.compare(list(range(10_000)), records)
    assert "and 4984 more" in message and len(message) < 400
    assert rendezvous.name_ranks([3]) == "rank 3"
