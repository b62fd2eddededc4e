"""fwr13y itself next to its scheme here: the same seeds bit for bit, and its defects.

The original is ``fwr13y.seeder.pyt`` of framework-reproducibility 0.6.0, from the test extra.
It turns an integer key into a seed with ``random.Random(key).randint(0, 2147483647)``: equal keys
are equal seeds, so collisions by the million are counted on keys.
"""

import concurrent.futures
import functools
import json
import multiprocessing
import os
import random
import runpy
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import fwr13y.seeder.pyt as original
import numpy as np
import pytest
import torch
from fwr13y.seeder.seed_gen import SeedGen
from helpers.processes import alone
from helpers.support import SCRIPTS, scramble, seeder, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

import fastseed
import fastseed.pyt
from fastseed._backend import derive
from fastseed._backend.reference import philox, scalar

RANKS, EPOCHS, TASKS = 10_000, 100, 2  # the job of the figures: 2,000,000 seeds


@pytest.fixture(autouse=True)
def old_seeder(monkeypatch):
    """fwr13y's own process-wide seeder."""
    monkeypatch.setattr(original, "_seeder_run", None)


def test_predecessor_is_the_version_that_was_measured():
    assert version("framework-reproducibility") == "0.6.0"


# ---------------------------------------------------------------- drop-in


def train(tmp_path, capsys, monkeypatch, line, *arguments):
    """Run the training script with another import line; what it printed."""
    source = (SCRIPTS / "train_with_fwr13y.py").read_text()
    old = "import fwr13y.seeder.pyt as seeder  # the import line"
    assert source.count(old) == 1
    script = tmp_path / "train.py"
    script.write_text(source.replace(old, line))
    monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
    runpy.run_path(str(script), run_name="__main__")
    return json.loads(capsys.readouterr().out.splitlines()[-1])


MODULES = ["fwr13y.seeder.pyt", "fastseed", "fastseed.pyt"]


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    return lambda line, *arguments: train(tmp_path, capsys, monkeypatch, line, *arguments)


@pytest.mark.parametrize("module", MODULES)
def test_one_script_runs_under_both_changing_only_the_import_line(run, module):
    line = f"import {module} as seeder"
    first = run(line, 42, 2, 1, 0, 3)
    scramble()
    assert run(line, 42, 2, 1, 0, 3) == first
    assert first["master_seed"] == 42
    assert len(first["losses"]) == 3 and len(first["own"]) == len(first["shared"]) == 4
    assert first["dropped"] == []
    assert all(0 <= seed < 2**31 for seed in first["own"] + first["shared"])
    other = run(line, 42, 2, 0, 0, 3)  # the other rank
    assert other["shared"] == first["shared"] and other["own"] != first["own"]
    assert other["digest"] != first["digest"]


# ---------------------------------------------------------------- scheme="fwr13y"

masters = st.integers(0, 2**64 - 1)
places = st.integers(1, 2**24 - 1).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1)))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(masters, places, st.integers(0, 2**24 - 1), st.integers(0, 2**32 - 1), st.booleans())
def test_legacy_seeds_are_those_of_the_package(master, place, task, epoch, shared):
    ngpus, rank = place
    theirs = SeedGen(master, ngpus, rank)(task, epoch, shared_seed=shared)
    mine = fastseed.pyt.SeedGen(master_seed=master, ngpus=ngpus, local_rank=rank)
    assert mine(task, epoch, shared_seed=shared) == theirs


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**40), places, st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_legacy_reseed_leaves_the_packages_states(master, place, task, epoch):
    theirs, mine = [], []
    old = original.Seeder(master, *place)
    old.register_generator(theirs.append, shared=True)  # which has its seed last
    old.register_generator(theirs.append)
    scramble()
    old.reseed(task, epoch)
    expected = snapshot()
    new = fastseed.pyt
    new.init(master, *place, scheme="fwr13y")
    new.register_generator(mine.append, shared=True)
    new.register_generator(mine.append)
    scramble()
    new.reseed(task, epoch)
    assert snapshot() == expected
    assert mine == theirs and all(type(value) is int for value in mine)


def test_legacy_scheme_draws_31_bits_and_changes_no_generator():
    before = snapshot()
    for _ in range(20):
        fastseed.pyt.init(None, 1, 0, scheme="fwr13y")
        assert 0 <= fastseed.pyt.get_master_seed() < 2**31
    assert snapshot() == before


def test_legacy_scheme_refuses_what_the_predecessor_lacks():
    with pytest.raises(ValueError, match="scheme must be one of 'philox-v1', 'fwr13y', got 'x'"):
        fastseed.pyt.init(42, scheme="x")
    fastseed.pyt.init(42, 1, 0, scheme="fwr13y")
    with pytest.raises(TypeError, match=r"gen must be a callable under scheme 'fwr13y', got"):
        fastseed.pyt.register_generator(torch.Generator())
    before = snapshot()
    with pytest.raises(ValueError, match="step must be 0 under scheme 'fwr13y', got 3"):
        fastseed.pyt.reseed(1, 0, 3)
    assert snapshot() == before
    with pytest.raises(ValueError, match="gen must be a registered generator, got"):
        fastseed.pyt.unregister_generator(print)


def test_the_legacy_scheme_is_a_job_of_its_module_alone(caplog):
    """So that no part of fastseed draws from keys of a job that the script has left."""
    fastseed.init(7)
    fastseed.register_generator(print, name="printed")
    fastseed.pyt.init(42, 1, 0, scheme="fwr13y")
    assert "which drops the registered generators ['printed']" in caplog.text
    for call in (fastseed.get_master_seed, lambda: fastseed.reseed(1), fastseed.state_dict):
        with pytest.raises(RuntimeError, match=r"call fastseed\.init\(\.\.\.\) first"):
            call()
    fastseed.init(7)
    assert fastseed.pyt.get_master_seed() == 7
    fastseed.pyt.reseed(1)
    assert torch.initial_seed() == fastseed.derive_seed("torch.cpu")


def test_legacy_reseed_names_what_failed_and_seeds_the_rest():
    def fail(seed):
        raise OSError("lost")

    def nested(seed):
        fastseed.pyt.reseed(1)

    seen, left = [], []
    fastseed.pyt.init(42, 1, 0, scheme="fwr13y")
    for function in (fail, nested, seen.append, left.append):
        fastseed.pyt.register_generator(function)
    fastseed.pyt.unregister_generator(left.append)
    with pytest.raises(fastseed.ReseedError) as caught:
        fastseed.pyt.reseed(1, 7)
    assert list(caught.value.failures) == ["generator/0", "generator/1"]
    assert seen == [fastseed.pyt.SeedGen(42, 1, 0)(1, 7)] == [torch.initial_seed()] != left


def test_legacy_ranks_share_no_seed_that_they_did_not_agree_on(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    fastseed.pyt.init(None, 2, 1, scheme="fwr13y")
    fastseed.pyt.register_generator(print)
    with pytest.raises(RuntimeError, match="ranks cannot share a stream"):
        fastseed.pyt.register_generator(print, shared=True)


@pytest.mark.parametrize("name", ["SeedGen", "generate_master_seed_randomly"])
def test_names_that_fastseed_leaves_to_pyt(name):
    with pytest.raises(AttributeError, match=rf"fastseed\.{name}: use fastseed\.pyt, which has it"):
        getattr(fastseed, name)


# ---------------------------------------------------------------- what it does better


def keys_there(master, *, ngpus=RANKS, ranks=RANKS, epochs=EPOCHS, tasks=TASKS, first_epoch=0):
    """fwr13y's keys of a whole job, 1-D int64."""
    epoch, rank, task = np.ogrid[first_epoch : first_epoch + epochs, 0:ranks, 0:tasks]
    return ((master + epoch * ngpus + rank) * TASKS + task).ravel()


def keys_here(s, name="torch.cpu", *, ranks=200, epochs=10, tasks=2, first_epoch=0):
    """The 128-bit keys of a smaller job of fastseed."""
    return [
        s.derive_key(name, task=task, epoch=epoch, rank=rank)
        for epoch in range(first_epoch, first_epoch + epochs)
        for rank in range(ranks)
        for task in range(tasks)
    ]


def seeds_here(master, name="torch.cpu"):
    """Our 64-bit seeds of the whole job of the figures, 1-D, by the library's own derivation."""
    words = scalar.name_words(name)
    found = np.empty((EPOCHS, TASKS, RANKS), np.uint64)
    for epoch in range(EPOCHS):
        for task in range(TASKS):
            scope = derive.scope_key(master, task, epoch, 0)
            found[epoch, task] = _vector_seeds(*derive.name_key(scope, words))
    return found.ravel()


def _vector_seeds(key, tweak):
    """The seeds of index 0 on every rank: the reference's block function over a vector of ranks."""
    low, high = np.uint64(tweak & 0xFFFFFFFF), np.uint64(tweak >> 32)
    rank_words = np.arange(RANKS, dtype=np.uint64) | np.uint64(scalar.DOMAIN_STREAM << 24)
    r = philox.blocks(key, low, high, rank_words, np.uint64(0))
    return r[0] | r[1] << np.uint64(32)


def test_key_formula_above_is_the_packages():
    rng = random.Random(1)
    keys = keys_there(42).reshape(EPOCHS, RANKS, TASKS)
    for _ in range(200):
        epoch, rank, task = rng.randrange(EPOCHS), rng.randrange(RANKS), rng.randrange(TASKS)
        seed = random.Random(int(keys[epoch, rank, task])).randint(0, 2147483647)
        assert seed == SeedGen(42, RANKS, rank)(task, epoch)


def narrow_seeds_here(master, name="generator/0"):
    """The 31-bit seeds of a registered callable in the whole job of the figures, (scope, rank)."""
    words, rows = scalar.name_words(name), []
    for epoch in range(EPOCHS):
        for task in range(TASKS):
            scope = derive.name_key(derive.scope_key(master, task, epoch, 0), words)
            key = scalar.stream_key(scope, 0, 0, 0, scalar.DOMAIN_NARROW)
            row = torch.empty(RANKS, dtype=torch.int64)
            derive.fill_shuffle(row, key, 1 << 31, 0, 1)
            rows.append(row.numpy())
    return np.stack(rows)


def equal_pairs(seeds):
    counts = np.unique(seeds, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


@pytest.mark.proof
def test_narrow_seeds_of_one_scope_differ_and_others_collide_by_chance():
    """The figures of docs/migration.md for 31 bits; 2,000,000 random ones would have 931 pairs."""
    ours, next_master = narrow_seeds_here(42), narrow_seeds_here(43)
    callable_ = []
    s = seeder(42)
    s.register_generator(callable_.append)
    s.reseed(1, 7)
    assert callable_ == [ours.reshape(EPOCHS, TASKS, RANKS)[7, 1, 0]]
    assert all(np.unique(row).size == RANKS for row in ours)
    assert equal_pairs(ours) == 935
    assert np.intersect1d(ours, next_master).size == 1_871


@pytest.mark.proof
def test_neighbouring_master_seeds_share_no_seeds():
    """There, masters 42 and 43 share 1,999,998 of 2,000,000."""
    theirs = np.intersect1d(keys_there(42), keys_there(43), assume_unique=True)
    assert (len(theirs), keys_there(42).size) == (1_999_998, 2_000_000)
    a, b = seeds_here(42), seeds_here(43)
    sample = seeder(42).derive_seed("torch.cpu", task=1, epoch=7, rank=9_999)
    assert a.reshape(EPOCHS, TASKS, RANKS)[7, 1, 9_999] == sample
    assert np.intersect1d(a, b).size == 0


def _seeds_of(keys):
    generator = random.Random(0)
    found = []
    for key in keys:
        generator.seed(key)
        found.append(generator.randint(0, 2147483647))
    return found


@pytest.mark.proof
def test_no_two_seeds_of_one_master_collide():
    """There, 965 pairs of the 2,000,000 seeds of master 42 are equal: they have 31 bits."""
    keys = keys_there(42)
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        halves = pool.map(_seeds_of, [keys[::2].tolist(), keys[1::2].tolist()])
        counts = Counter(seed for half in halves for seed in half)
    assert sum(n * (n - 1) // 2 for n in counts.values()) == 965
    seeds = seeds_here(42)
    assert np.unique(seeds).size == seeds.size == 2_000_000


def test_any_number_of_tasks():
    """There, task 2 of a rank is task 0 of the next."""
    for rank in range(7):
        theirs = SeedGen(42, 8, rank)(2, 5), SeedGen(42, 8, rank + 1)(0, 5)
        assert theirs[0] == theirs[1]
    found = keys_here(seeder(42), ranks=8, epochs=3, tasks=100)
    assert len(set(found)) == len(found) == 8 * 3 * 100


def test_shared_never_equals_a_ranks_own():
    """There, 200 of the 200 shared seeds of the job are also some rank's own."""
    epoch, task = np.ogrid[0:EPOCHS, 0:TASKS]
    shared = (2 * (42 + epoch) * TASKS + task).ravel()
    gen = SeedGen(42, RANKS, 0)
    for at in ((0, 0), (1, 7), (1, 99)):
        value = gen(*at, shared_seed=True)
        assert value == random.Random(int(shared.reshape(EPOCHS, TASKS)[at[1], at[0]])).randint(
            0, 2147483647
        )
    assert np.isin(shared, keys_there(42)).sum() == shared.size == 200
    s = seeder(42)
    ours = {
        s.derive_key("x", task=t, epoch=e, rank=fastseed.SHARED)
        for t in range(2)
        for e in range(100)
    }
    assert len(ours) == 200
    assert not ours & set(keys_here(s, "x", ranks=200, epochs=100))


def test_arguments_that_are_no_integers_are_refused():
    with pytest.raises(TypeError, match=r"^fastseed\.pyt\.SeedGen: ngpus must be an integer"):
        fastseed.pyt.SeedGen(1, "a", 0)
    with pytest.raises(TypeError, match=r"^fastseed\.pyt\.SeedGen: epoch must be an integer"):
        fastseed.pyt.SeedGen(1, 1, 0)(1, None)


def test_negative_master_seeds_are_refused_not_folded():
    """There, -10 gives the seeds of 10, because random.Random takes absolute values."""
    assert SeedGen(-10, 8, 0)(0, 0) == SeedGen(10, 8, 0)(0, 0)
    assert SeedGen(-10, 8, 3)(0, 0) == SeedGen(7, 8, 0)(0, 0)
    with pytest.raises(ValueError, match=r"master_seed must be in \[0, .*\], got -10"):
        fastseed.init(-10)
    with pytest.raises(ValueError, match="master_seed"):
        fastseed.pyt.init(-10, scheme="fwr13y")


def test_nodes_do_not_repeat_each_other(monkeypatch):
    """There, 1,250 nodes of 8 that pass ``local_rank`` as documented use 1,600 different seeds."""
    theirs = keys_there(42, ranks=8)
    assert (np.unique(theirs).size, 1250 * theirs.size) == (1_600, 2_000_000)
    assert SeedGen(42, RANKS, 3)(1, 7) == SeedGen(42, RANKS, 3)(1, 7)  # on every node
    found = set()
    for node in range(25):
        for local_rank in range(8):
            monkeypatch.setenv("RANK", str(node * 8 + local_rank))
            monkeypatch.setenv("WORLD_SIZE", "10000")
            s = fastseed.Seeder(42, 10_000, local_rank)
            assert s.rank == node * 8 + local_rank
            found.add(s.derive_key("torch.cpu", task=1, epoch=7))
    assert len(found) == 200


def test_resuming_on_another_world_size_reuses_nothing():
    """There, ten epochs on 8 ranks and ten more on 4 repeat every seed of the second half."""
    first = keys_there(42, ngpus=8, ranks=8, epochs=10)
    then = keys_there(42, ngpus=4, ranks=4, epochs=10, first_epoch=10)
    assert np.isin(then, first).all()
    assert SeedGen(42, 4, 0)(1, 10) == SeedGen(42, 8, 0)(1, 5)
    before = keys_here(seeder(42, rank=0, world_size=8), ranks=8, epochs=10)
    after = keys_here(seeder(42, rank=0, world_size=4), ranks=4, epochs=10, first_epoch=10)
    assert not set(before) & set(after)


def test_registered_generators_get_different_seeds():
    def seeds(one):
        seen = []
        one.register_generator(seen.append)
        one.register_generator(lambda seed: seen.append(seed))
        one.reseed(1, 2)
        return seen

    theirs = seeds(original.Seeder(42, 1, 0))
    assert theirs[0] == theirs[1]
    ours = seeds(seeder(42))
    assert ours[0] != ours[1]


def words():
    """The next 1,000 words of NumPy's and of torch's generator, without their top bits."""
    numpy = np.random.randint(0, 2**32, 1000, dtype=np.uint32) & 0x7FFFFFFF
    return numpy, torch.empty(1000, dtype=torch.int32).random_().numpy()


def test_numpy_and_torch_emit_different_words():
    """There, both are an MT19937 with the same 32-bit seed, and go on word for word."""
    original.Seeder(42, 1, 0).reseed(1, 2)
    numpy, torch_ = words()
    assert np.array_equal(numpy, torch_)
    seeder(42).reseed(1, 2)
    numpy, torch_ = words()
    assert not (numpy == torch_).any()


def growth(who, count=1_000_000):
    """Return by how many bytes a process grows over many reseeds."""

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    # fwr13y's reseed is this and three calls that keep nothing (and take 30 times longer).
    step = seeder(42).reseed if who == "ours" else SeedGen(42, 1, 0)
    for epoch in range(1000):
        step(1, epoch)
    before = resident()
    for epoch in range(1000, 1000 + count):
        step(1, epoch)
    return resident() - before


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_million_reseeds_grow_memory_by_less_than_a_megabyte():
    """There, 68 MB: a set keeps every seed that was ever used."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ours, theirs = pool.map(functools.partial(alone, growth), ("ours", "theirs"))
    assert ours < 1_000_000
    assert 60_000_000 < theirs < 80_000_000
