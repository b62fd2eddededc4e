"""Children of ``os.fork``: their streams, by the order of forking, and the locks of generators."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import weakref

import pytest
import torch
from helpers.paths import ROOT
from helpers.support import run_script, seeder

import fastseed
from fastseed import SHARED
from fastseed.derivation.forks import _MANY, Ancestry, Fork, master_of_child
from fastseed.derivation.scopes import Scope

needs_fork = pytest.mark.skipif(not hasattr(os, "forkpty"), reason="this system has no fork")

AT = Scope(1, 4, 0)
PYTHON, COMMON = 0, -1  # columns of what ``scripts/forked_children.py`` draws


@pytest.fixture(scope="module")
def reseeded():
    return run_script("forked_children.py", "reseed")


@pytest.fixture(scope="module")
def inherited():
    return run_script("forked_children.py", "inherit")


def all_children(found):
    """Return the random numbers of every child, in any scope."""
    cases = ("children", "next scope", "repeated scope", "nested", "later", "forkpty", "Process")
    more = ("after a subprocess", "inside a block", "from a thread", "with a generator that fails")
    return [numbers for case in (*cases, *more) for numbers in found[case]]


# ---------------------------------------------------------------- the rule


def test_the_rule_and_its_documentation_have_known_answers():
    """Found by a program of its own; the second is a child's child."""
    text = (ROOT / "docs" / "spec" / "derivation.md").read_text("utf-8")
    for found in (
        master_of_child(42, 3, (Fork(AT, 1),)),
        master_of_child(42, 3, (Fork(AT, 1), Fork((2, 7, 9), 2))),
        master_of_child(42, SHARED, (Fork((0, 0, 0), 1),)),
    ):
        assert f"`{found:016x}`" in text


def test_the_master_of_a_child_is_the_seed_of_a_stream():
    s = seeder(42, rank=3, world_size=8)
    for number in (1, 2, 2**39):
        expected = s.derive_seed("process.fork", task=1, epoch=4, index=number)
        assert master_of_child(42, 3, (Fork(AT, number),)) == expected


def test_children_are_counted_in_each_scope():
    ancestry, other = Ancestry(), Scope(1, 5, 0)
    assert [ancestry.count_child(at).child for at in (AT, AT, other, AT, other)] == [1, 2, 1, 3, 2]
    for epoch in range(2 * _MANY):
        ancestry.count_child(Scope(1, epoch, 0))
    assert len(ancestry._children) == _MANY


# ---------------------------------------------------------------- children


@needs_fork
def test_children_inherit_all_generators_but_pythons(inherited):
    (parent,) = inherited["parent"]
    children = inherited["children"]
    assert all(child[1:] == parent[1:] for child in children)
    assert len({child[PYTHON] for child in (parent, *children)}) == 4
    assert inherited["later"][0][1:] == parent[1:]


@needs_fork
def test_every_child_has_its_own_streams(reseeded):
    streams = [*all_children(reseeded), *reseeded["parent"], *reseeded["parent at 5"]]
    for column in range(len(streams[0])):
        assert len({stream[column] for stream in streams}) == len(streams), column


@needs_fork
def test_children_repeat_with_the_order_of_forking(reseeded):
    again = run_script("forked_children.py", "reseed", FASTSEED_BACKEND="reference")
    assert all_children(again) == all_children(reseeded)
    assert reseeded["new init"] == reseeded["children"][0][:3]
    assert again["before the first reseed"] == reseeded["before the first reseed"]


@needs_fork
@pytest.mark.parametrize(
    ("case", "at", "number"),
    [
        ("children", AT, 1),
        ("repeated scope", AT, 4),
        ("after a subprocess", (3, 0, 0), 1),  # which runs no handlers
        ("inside a block", (3, 2, 0), 1),
        ("with a generator that fails", (3, 3, 0), 1),
    ],
)
def test_a_child_has_the_streams_of_a_job_with_the_master_seed_of_the_rule(
    reseeded, case, at, number
):
    """Shared streams too: they follow from the shared rank field."""
    fork = Fork(Scope(*at), number)
    first = reseeded[case][0]
    seeder(master_of_child(42, 3, (fork,)), rank=3, world_size=8).reseed(*at)
    assert first[2] == torch.randint(2**60, ()).item()
    shared, seen = seeder(master_of_child(42, SHARED, (fork,)), rank=3, world_size=8), []
    shared.register_generator(seen.append, True, name="common")
    shared.reseed(*at)
    assert first[COMMON] == seen[0]


@needs_fork
def test_nothing_changes_in_the_parent(reseeded, inherited):
    for case in ("parent", "parent at 5"):
        assert reseeded[case] == inherited[case]
    assert reseeded["parent unchanged"] and inherited["parent unchanged"]


@needs_fork
def test_master_seed_rank_scope_and_keys_stay_the_jobs(reseeded):
    about, parent = reseeded["about"], reseeded["parent about"]
    assert about["job"] == parent["job"] == [42, 3, 8, 3, [2, 0, 0]]
    assert about["key"] == parent["key"]
    assert parent["stream_master"] == 42 != about["stream_master"]


@needs_fork
def test_a_child_forked_before_the_first_reseed_is_in_the_scope_of_init(reseeded):
    drawn, scope = reseeded["before the first reseed"]
    assert scope == [0, 0, 0]
    seeder(master_of_child(42, 3, (Fork((0, 0, 0), 1),)), rank=3, world_size=8).reseed(0)
    assert drawn[2] == torch.randint(2**60, ()).item()


@needs_fork
@pytest.mark.slow
def test_workers_of_a_loader_draw_the_same_in_every_mode():
    """They are forked children too, but have streams by their number: as spawned ones have."""
    found = run_script("forked_workers.py", "reseed", "fork")
    assert found == run_script("forked_workers.py", "none", "fork")
    spawned = run_script("forked_workers.py", "reseed", "spawn")
    assert spawned == {"workers 0": found["workers 0"]}
    drawn = [number for items in found.values() for item in items for number in item]
    assert len(set(drawn)) == len(drawn) == 3 * 8 * 4


# ---------------------------------------------------------------- the seeder


@pytest.mark.parametrize("mode", [None, "inherit", "reseed"])
def test_the_mode_changes_nothing_in_this_process(mode):
    seeder().reseed(1, 2)
    expected = torch.get_rng_state()
    s = seeder(on_os_fork=mode)
    s.reseed(1, 2)
    assert torch.equal(torch.get_rng_state(), expected)
    assert s._master_of(0) == s.master_seed == 42
    assert pickle.loads(pickle.dumps(s)).on_os_fork == mode


def test_the_state_of_the_job_loaded_in_a_child_leaves_it_a_child():
    fastseed.init(7, on_os_fork="reseed")
    s = fastseed.derivation.context.seeder
    s._follow_fork(Fork(AT, 1))
    job = seeder(42)
    job.reseed(2, 3)
    fastseed.load_state_dict(job.state_dict())
    assert fastseed.get_master_seed() == 42 and s.scope == (2, 3, 0)
    expected = master_of_child(42, 0, (Fork(AT, 1),))
    assert s._master_of(0) == expected
    assert torch.initial_seed() == seeder(expected).derive_seed("torch.cpu", task=2, epoch=3)
    pool = fastseed.GeneratorPool([torch.Generator()], "pool")
    pool.reseed(2, 3)
    assert pool[0].initial_seed() == seeder(expected).derive_seed("pool", task=2, epoch=3)


def test_a_child_sent_to_a_spawned_process_stays_a_child():
    s = seeder(on_os_fork="reseed")
    s._follow_fork(Fork(AT, 1))
    s._follow_fork(Fork(AT, 5))
    data = pickle.dumps(s)
    assert b"itertools" not in data, "the counts of its own children stay, and Python 3.14 has none"
    twin = pickle.loads(data)
    expected = master_of_child(42, 0, (Fork(AT, 1), Fork(AT, 5)))
    assert twin._master_of(0) == s._master_of(0) == expected != 42
    twin.reseed(1, 9)
    assert torch.initial_seed() == seeder(expected).derive_seed("torch.cpu", task=1, epoch=9)


def test_seeders_end_with_their_last_user_without_the_garbage_collector():
    """So that what a forked child draws does not depend on when the collector runs."""
    gc.disable()
    try:
        s = seeder(on_os_fork="reseed")
        s.register_generator(torch.Generator())
        s.reseed(1)
        with s.fork_rng("block"):
            pass
        gone = weakref.ref(s)
        del s
        assert gone() is None
    finally:
        gc.enable()


@needs_fork
@pytest.mark.parametrize("mode", [None, "inherit"])
def test_a_seeder_that_init_replaced_leaves_children_alone(mode):
    fastseed.init(42, rank=0, world_size=1, on_os_fork="reseed")
    replaced = fastseed.derivation.context.seeder  # keeps it alive
    fastseed.init(42, rank=0, world_size=1, on_os_fork=mode)
    fastseed.reseed(1, 2)
    assert first_of_a_child() == torch.randint(2**60, ()).item()
    assert replaced._ancestry.forks == ()


@needs_fork
def test_a_child_of_another_thread_than_the_one_that_reseeds_reseeds():
    fastseed.init(42, rank=0, world_size=1)
    inside, forked = threading.Event(), threading.Event()

    def seed_slowly(seed):
        inside.set()
        assert forked.wait(60)

    fastseed.register_generator(seed_slowly)
    thread = threading.Thread(target=fastseed.reseed, args=(1,))
    thread.start()
    assert inside.wait(60)
    child = os.fork()
    if not child:
        forked.set()
        try:
            fastseed.reseed(2)
            os._exit(0)
        finally:
            os._exit(1)
    forked.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def first_of_a_child() -> int:
    """Return the first number that a forked child draws from torch's generator."""
    read, write = os.pipe()
    if not os.fork():
        os.write(write, str(torch.randint(2**60, ()).item()).encode())
        os._exit(0)
    os.wait()
    os.close(write)
    with open(read) as file:
        return int(file.read())
