"""A fork while other threads draw leaves no lock behind: no child hangs."""

from __future__ import annotations

import os

import pytest
from helpers.support import needs_native, run_script

import fastseed

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def run(case):
    return run_script("forked_locks.py", case, timeout=150, OMP_NUM_THREADS="1")


def test_children_hang_without_it():
    """What is cured below: torch's mutex, or NumPy's lock, is held in the child for ever."""
    assert run("without")["hung"] == 1


@needs_native
def test_no_child_hangs():
    """Of 30, while six threads draw from global and registered generators all the time."""
    assert run("after") == {"hung": 0, "different": 1, "said": []}


@needs_native
def test_no_child_hangs_and_each_is_on_streams_of_its_own():
    assert run("reseed") == {"hung": 0, "different": 30, "said": []}


@needs_native
def test_two_threads_fork_at_once():
    assert run("two threads") == {"children": 10, "hung": 0, "different": 10}


@needs_native
def test_locks_that_are_not_given_back_are_made_anew_in_the_child():
    found = run("taken")
    assert found["busy"], "the lock was free before the child had drawn"
    (said,), drawn = found["child"]
    assert said.startswith("fastseed: the locks of 2 generators were not given back")
    assert len(set(drawn)) == 3 and all(0 <= x < 1 for x in drawn)
    assert found["drew"] and found["said"] == []


@needs_native
def test_handlers_of_others_and_locks_of_our_own_thread():
    """Others may draw and seed around a fork, and NumPy's lock may be the forking thread's."""
    found = run("reentrant")
    assert found["orders"] == ["B", "b", "p", "P"]
    assert found["child"] not in (None, 1, 7), "the handler of another library had the last word"
    assert found["free"] == 1 and found["said"] == []


@needs_native
def test_handlers_that_fork_leave_no_lock_behind():
    found = run("nested")
    assert None not in found["children"], "a child hung"
    assert len({*found["children"], found["parent"]}) == 5
    assert found["free"] == 1, "a thread of the parent waits for NumPy's lock for ever"
    assert found["said"] == []


def test_generators_that_fail_or_fork_in_a_child():
    found = run("failing")
    (said,), behind, torch_seed, scope = found["failed"]
    assert "fails: ValueError('not here')" in said and scope == [1, 3, 0]
    assert behind == 2, "the generator behind the one that failed was not reseeded"
    assert torch_seed != found["parent"]
    ((told,),) = found["forked while reseeding"]
    assert "a generator forked while it was being reseeded" in told


def test_handlers_are_installed_once():
    calls = []
    before = os.register_at_fork
    fastseed.Seeder(42)
    try:
        os.register_at_fork = lambda **_: calls.append(1)
        for _ in range(3):
            fastseed.init(42, on_os_fork="reseed")
    finally:
        os.register_at_fork = before
    assert calls == []
