"""A job of 100,000 ranks: no two of its keys are equal, and no state grows with it.

``count_keys.cpp`` counts by the library's own kernels. The whole of 100,000 ranks x 1,000 streams x
100 scopes, ten thousand million keys, takes minutes and 2.6 GB: it runs when FASTSEED_SCALE=1. One
scope of it, a hundred million keys, always does.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch
from helpers.support import seeder

HERE = Path(__file__).resolve().parent
CPU = HERE.parents[1] / "csrc" / "cpu"
KERNELS = [CPU / "dispatch.cpp", *sorted(CPU.glob("path_*.cpp"))]
FLAGS = ("-std=c++17", "-O3", "-Wall", "-Wextra", "-Werror", "-pthread")
RANKS, MEMBERS = 100_000, 200
NAMES = tuple(f"generator/{k}" for k in range(5))  # 5 pools of 200: 1,000 streams a rank
THREADS = os.cpu_count() or 1


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    compiler = shutil.which(os.environ.get("CXX", "g++").split()[0]) or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    target = tmp_path_factory.mktemp("scale") / "count_keys"
    command = [compiler, *FLAGS, HERE / "count_keys.cpp", *KERNELS, "-o", target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return target


def count(program, ranks, scopes, passes=1, distinct=None, timeout=250):
    """Return what the program found among the keys of master seed 42."""
    numbers = [42, ranks, MEMBERS, scopes, distinct or scopes, passes, THREADS]
    command = [str(program), *map(str, numbers), *NAMES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["keys"] == ranks * len(NAMES) * MEMBERS * scopes
    return found


def check_last(found, ranks, scopes):
    """The keys it counted are the library's: the last of them is."""
    place = {"epoch": scopes - 1, "rank": ranks - 1, "index": MEMBERS - 1}
    key = seeder(42, world_size=ranks).derive_key(NAMES[-1], task=1, **place)
    assert found["last"] == [key & (2**64 - 1), key >> 64]


def check_chance(found):
    """Cut to fewer bits, keys coincide as often as random numbers do: within six deviations."""
    expected = found["keys"] ** 2 / 2 / 2 ** found["fingerprint_bits"]
    assert abs(found["repeated_fingerprints"] - expected) < 6 * expected**0.5 + 6


def test_no_two_keys_of_a_scope_are_equal(program):
    found = count(program, RANKS, 1)
    check_last(found, RANKS, 1)
    check_chance(found)
    assert found["keys"] == 10**8
    assert found["equal_keys"] == found["equal_keys_in_a_scope"] == 0
    assert found["equal_seeds"] == 0  # expected: 0.0003


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(
    os.environ.get("FASTSEED_SCALE") != "1", reason="takes minutes and 2.6 GB: FASTSEED_SCALE=1"
)
def test_no_two_keys_of_a_whole_job_are_equal(program):
    found = count(program, RANKS, 100, passes=16, timeout=3600)
    print(found)
    check_last(found, RANKS, 100)
    check_chance(found)
    assert found["keys"] == 10**10
    assert found["equal_keys"] == found["equal_keys_in_a_scope"] == 0
    assert found["equal_seeds"] <= 20  # expected: 2.7, as of any 64-bit numbers


@pytest.mark.parametrize("passes", [1, 4])
def test_the_count_finds_what_is_equal(program, passes):
    """One scope three times, two scopes twice: each key has as many twins as it should."""
    n = 40 * len(NAMES) * MEMBERS
    found = count(program, 40, 3, passes=passes, distinct=1)
    assert found["equal_keys"] == found["equal_seeds"] == 3 * n
    assert found["equal_keys_in_a_scope"] == 0
    assert count(program, 40, 4, passes=passes, distinct=2)["equal_keys"] == 2 * n


def test_the_count_finds_what_is_equal_in_a_scope(program):
    """Two streams of one name, which registration refuses."""
    arguments = [42, 40, MEMBERS, 1, 1, 1, THREADS, "a", "b", "a"]
    done = subprocess.run(
        [str(program), *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    found = json.loads(done.stdout)
    assert found["equal_keys"] == found["equal_keys_in_a_scope"] == 40 * MEMBERS


# ---------------------------------------------------------------- cost


def allocated(world):
    """Bytes and blocks that Python allocates for a seeder of this world and a hundred reseeds."""
    picks = random.Random(1)
    tracemalloc.start()
    try:
        s = seeder(42, rank=world - 1, world_size=world)
        for epoch in range(100):
            s.reseed(1, epoch)
            s.derive_key("numpy", task=1, epoch=epoch, rank=picks.randrange(world))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return kept, peak


def instructions(world):
    """The bytecode lines that a reseed and a key derivation run, by function."""
    s = seeder(42, rank=world - 1, world_size=world)
    s.register_generator(torch.Generator(), name="mine")
    s.reseed(1)
    s.derive_key("numpy", task=1)  # the words of a name are computed once
    ran: dict[str, int] = {}

    def trace(frame, event, _):
        if event == "line":
            name = frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name
            ran[name] = ran.get(name, 0) + 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        s.reseed(1, 5)
        s.derive_key("numpy", task=1, epoch=5)
    finally:
        sys.settrace(before)
    return ran


def test_cost_of_a_seed_does_not_depend_on_the_world():
    """The same work, line by line, for 1 rank and for ten million."""
    one = instructions(1)
    assert sum(one.values()) > 10
    assert instructions(100) == instructions(100_000) == instructions(10_000_000) == one


def test_no_state_grows_with_the_world():
    allocated(1)  # what is made once
    small, large = allocated(1), allocated(10_000_000)
    for a, b in zip(small, large, strict=True):
        assert abs(a - b) < 4096, (small, large)
