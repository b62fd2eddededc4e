"""Children of fork are on streams of their own, by the order of forking."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from helpers.support import run_script, seeder

import fastseed
from fastseed import SHARED
from fastseed.seeder import os_fork
from fastseed.seeder.os_fork import Fork, Lineage, master_of_child

needs_fork = pytest.mark.skipif(not hasattr(os, "forkpty"), reason="this system has no fork")

AT = fastseed.derivation.streams.Coordinates(1, 4, 0)
GLOBALS, PYTHON, COMMON = slice(0, 3), 0, -1  # of the draws of ``scripts/forked_draws.py``


@pytest.fixture(scope="module")
def reseeded():
    """What ``scripts/forked_draws.py`` found under on_os_fork="reseed"."""
    return run_script("forked_draws.py", "reseed")


@pytest.fixture(scope="module")
def inherited():
    """The same without it."""
    return run_script("forked_draws.py", "none")


def all_children(found):
    """The draws of every child of rank 3, at whatever scope."""
    nested = found["nested"]
    yield from found["children"] + found["next scope"] + found["again"]
    yield from (nested["own"], nested["first"], nested["second"]["own"], nested["second"]["first"])
    yield from (found["later"]["4"], found["later"]["5"])
    yield from (found["forkpty"], found["Process"], found["from a thread"])
    yield from (found["after a subprocess"], found["after a prepared subprocess"])
    yield found["inside of a block"]


# ---------------------------------------------------------------- what the rule is


def test_rule_gives_known_answers():
    """From a program of its own, in plain integers; the second is a child's child."""
    assert master_of_child(42, 3, (Fork(AT, 1),)) == 0x1F50B79E57F572B1
    assert master_of_child(42, 3, (Fork(AT, 1), Fork((2, 7, 9), 2))) == 0x7328B6A5E9C3D62A
    assert master_of_child(42, SHARED, (Fork((0, 0, 0), 1),)) == 0x13F26EB33F8361A5


def test_documentation_has_the_known_answers():
    text = (Path(__file__).resolve().parents[2] / "docs" / "processes.md").read_text("utf-8")
    for seed in ("1f50b79e57f572b1", "7328b6a5e9c3d62a", "13f26eb33f8361a5"):
        assert f"`{seed}`" in text
    assert f"{master_of_child(42, 3, (Fork(AT, 1),)):x}" == "1f50b79e57f572b1"


def test_rule_is_the_seed_of_a_stream():
    s = seeder(42, rank=3, world_size=8)
    for number in (1, 2, 2**39):
        expected = s.derive_seed("process.fork", task=1, epoch=4, index=number)
        assert master_of_child(42, 3, (Fork(AT, number),)) == expected


def test_masters_of_many_children_differ():
    """Of 20 ranks, 50 scopes, 10 children, and their first children."""
    found = set()
    for rank, epoch, k in itertools.product(range(20), range(50), range(1, 11)):
        fork = Fork(fastseed.derivation.streams.Coordinates(1, epoch, 0), k)
        found |= {master_of_child(42, rank, forks) for forks in ((fork,), (fork, Fork(AT, 1)))}
    assert len(found) == 20 * 50 * 10 * 2 and 42 not in found


def test_children_are_counted_in_each_scope():
    line, other = Lineage(), fastseed.derivation.streams.Coordinates(1, 5, 0)
    assert [line.next(at).number for at in (AT, AT, other, AT, other)] == [1, 2, 1, 3, 2]
    child = line.child(Fork(AT, 2))
    assert child.forks == (Fork(AT, 2),) and child.next(AT).number == 1


def test_threads_that_fork_at_once_count_each_child_once():
    """Two children of one number would draw the same."""
    line, numbers, together = Lineage(), [], threading.Barrier(4)

    def fork_many():
        together.wait()
        for _ in range(20_000):
            numbers.append(line.next(AT).number)

    threads = [threading.Thread(target=fork_many) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(numbers) == list(range(1, 80_001))


def test_counts_of_children_do_not_grow_for_ever():
    line = Lineage()
    for epoch in range(2 * os_fork._MANY):
        line.next(fastseed.derivation.streams.Coordinates(1, epoch, 0))
    assert len(line._children) == os_fork._MANY
    assert (
        line.next(fastseed.derivation.streams.Coordinates(1, 2 * os_fork._MANY - 1, 0)).number == 2
    )


# ---------------------------------------------------------------- what happens today


@needs_fork
def test_without_it_torch_and_numpy_are_duplicated_and_random_is_not(inherited):
    """``random`` seeds itself from the operating system in each child, so nothing repeats it."""
    parent, children = inherited["parent"], inherited["children"]
    assert all(child[1:] == parent[1:] for child in children)
    assert len({child[PYTHON] for child in (parent, *children)}) == 4
    assert children[0][PYTHON] != inherited["anew"][0][PYTHON]  # the same job once more
    assert inherited["later"]["4"] == parent


# ---------------------------------------------------------------- what happens with it


@needs_fork
def test_every_child_draws_what_nobody_else_draws(reseeded):
    streams = [*all_children(reseeded), reseeded["parent"], reseeded["parent at 5"]]
    for column in range(len(streams[0])):
        assert len({stream[column] for stream in streams}) == len(streams), column
    assert reseeded["rank 4"][0][GLOBALS] != reseeded["anew"][0][GLOBALS]
    assert not set(reseeded["rank 4"][0]) & set(itertools.chain(*streams))


@needs_fork
def test_children_repeat_with_the_order_of_forking(reseeded):
    again = run_script("forked_draws.py", "reseed")
    assert list(all_children(again)) == list(all_children(reseeded))
    assert reseeded["anew"][0] == reseeded["children"][0][GLOBALS]  # another init of the same job
    assert again["before the first reseed"] == reseeded["before the first reseed"]


@needs_fork
def test_children_are_those_of_a_job_with_the_master_seed_of_the_rule(reseeded):
    """Shared streams too: they follow from the shared place."""
    own = seeder(reseeded["rule"], rank=3, world_size=8)
    seen: list[int] = []
    own.register_generator(seen.append, name="own.call")
    own.reseed(*AT)
    first = reseeded["children"][0]
    assert first[2] == torch.randint(2**60, ()).item() and first[-2] == seen[0]
    shared = seeder(master_of_child(42, SHARED, (Fork(AT, 1),)), rank=3, world_size=8)
    shared.register_generator(seen.append, True, name="common")
    shared.reseed(*AT)
    assert first[COMMON] == seen[1]


@needs_fork
@pytest.mark.parametrize(
    ("case", "at", "number"),
    [
        ("after a subprocess", (3, 0, 0), 1),  # which runs no handlers
        ("after a prepared subprocess", (3, 0, 0), 3),
        ("inside of a block", (3, 2, 0), 1),
    ],
)
def test_what_counts_as_a_fork(reseeded, case, at, number):
    own = seeder(master_of_child(42, 3, (Fork(at, number),)), rank=3, world_size=8)
    own.reseed(*at)
    assert reseeded[case][2] == torch.randint(2**60, ()).item()


@needs_fork
def test_nothing_changes_in_the_parent(reseeded, inherited):
    assert reseeded["parent unchanged"] and inherited["parent unchanged"]
    assert reseeded["parent"] == inherited["parent"]
    assert reseeded["parent at 5"] == inherited["parent at 5"]
    assert reseeded["parent about"]["torch"] == inherited["parent about"]["torch"]


@needs_fork
def test_master_seed_place_and_look_ups_stay_the_jobs(reseeded):
    about, parent = reseeded["about"], reseeded["parent about"]
    assert about["place"] == parent["place"] == [42, 3, 8, 3, [2, 0, 0]]
    assert (
        about["key"]
        == parent["key"]
        == seeder(42, rank=3, world_size=8).derive_key("numpy", task=1, epoch=4)
    )
    assert parent["streams"] == [42, 42]
    assert about["streams"][0] == about["streams"][1] != 42
    assert f"with streams of master seed {about['streams'][0]}" in about["repr"]
    assert about["torch"] != parent["torch"]


@needs_fork
def test_pools_and_banks_reseeded_by_hand_follow_the_child(reseeded, inherited):
    mine, parents = (found["later"]["members"] for found in (reseeded, inherited))
    assert all(a != b for a, b in zip(mine, parents, strict=True))


@needs_fork
def test_child_forked_before_the_first_reseed_has_no_scope(reseeded, inherited):
    ((drawn, scope),) = reseeded["before the first reseed"]
    assert scope is None
    own = seeder(master_of_child(42, 3, (Fork((0, 0, 0), 1),)), rank=3, world_size=8)
    own.reseed(0)
    assert drawn[2] == torch.randint(2**60, ()).item()


@needs_fork
def test_children_are_the_same_without_native_code(reseeded):
    found = run_script("forked_draws.py", "reseed", FASTSEED_BACKEND="reference")
    assert list(all_children(found)) == list(all_children(reseeded))


@needs_fork
def test_workers_of_a_loader_draw_what_they_always_do():
    """They are forked children too, but told apart by their number: as without, and as spawned."""
    found = run_script("forked_workers.py", "reseed", "fork")
    assert found == run_script("forked_workers.py", "none", "fork")
    spawned = run_script("forked_workers.py", "reseed", "spawn")
    assert spawned == {"workers 0": found["workers 0"]}
    drawn = [number for items in found.values() for item in items for number in item]
    assert len(set(drawn)) == len(drawn) == 3 * 8 * 4


# ---------------------------------------------------------------- the seeder


@pytest.mark.parametrize("mode", [None, "inherit", "reseed"])
def test_mode_is_remembered_and_changes_nothing_here(mode):
    plain, s = seeder(), seeder(on_os_fork=mode)
    plain.reseed(1, 2)
    expected = torch.get_rng_state()
    s.reseed(1, 2)
    assert torch.equal(torch.get_rng_state(), expected)
    assert s.fork_mode == mode and s.stream_master == s.master_seed == 42
    assert pickle.loads(pickle.dumps(s)).fork_mode == mode


@pytest.mark.parametrize(
    ("mode", "more", "error", "message"),
    [
        ("spawn", {}, ValueError, "fork must be None or one of ('inherit', 'reseed'), got 'spawn'"),
        ("", {}, ValueError, "got ''"),
        (True, {}, TypeError, "got True of type bool"),
        ("reseed", {"scheme": "fwr13y"}, ValueError, "under scheme 'fwr13y', got 'reseed'"),
    ],
)
def test_wrong_mode_is_an_error(mode, more, error, message):
    with pytest.raises(error) as caught:
        fastseed.init(42, on_os_fork=mode, **more)
    assert str(caught.value).startswith("fastseed.init: fork must be ")
    assert message in str(caught.value)
    assert fastseed.derivation.context.seeder is None


def test_predecessors_scheme_may_inherit():
    seeder(scheme="fwr13y", on_os_fork="inherit").reseed(1, 2)


def test_name_of_the_stream_of_forks_is_taken():
    with pytest.raises(ValueError, match=r"already be registered, got 'process\.fork'"):
        seeder().register_generator(print, name="process.fork")


def become(s, *forks):
    """Make ``s`` the child of these forks, as a forked process does."""
    for fork in forks:
        s._become(fork)


def test_state_of_the_job_loaded_in_a_child_leaves_it_a_child():
    fastseed.init(7, on_os_fork="reseed")
    s = fastseed.derivation.context.seeder
    become(s, Fork(AT, 1))
    job = seeder(42)
    job.reseed(2, 3)
    fastseed.load_state_dict(job.state_dict())
    assert fastseed.get_master_seed() == 42 and s.scope == (2, 3, 0)
    expected = master_of_child(42, 0, (Fork(AT, 1),))
    assert s.stream_master == fastseed.derivation.context.origin("test").master_seed == expected
    assert torch.initial_seed() == seeder(expected).derive_seed("torch.cpu", task=2, epoch=3)


def test_child_is_a_child_when_it_is_sent_on_by_spawn():
    s = seeder(on_os_fork="reseed")
    become(s, Fork(AT, 1), Fork(AT, 5))
    twin = pickle.loads(pickle.dumps(s))
    assert twin.stream_master == s.stream_master == master_of_child(42, 0, s._line.forks) != 42
    twin.reseed(1, 9)
    assert torch.initial_seed() == seeder(s.stream_master).derive_seed("torch.cpu", task=1, epoch=9)


def test_another_seeders_origin_is_left_alone():
    fastseed.init(7)
    become(seeder(on_os_fork="reseed"), Fork(AT, 1))
    assert fastseed.derivation.context.origin("test").master_seed == 7


def test_seeders_are_not_kept_alive():
    gone = weakref.ref(seeder(on_os_fork="reseed"))
    assert gone() is None
    assert sum(1 for s in os_fork._watched() if s.fork_mode == "reseed") == 0
