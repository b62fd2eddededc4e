"""fork, other processes, pickles and threads."""

import copy
import logging
import os
import pickle
import random
import threading
import time

import numpy as np
import pytest
import torch
from helpers.processes import alone, in_child
from helpers.support import holds_key, seeder, snapshot

import fastseed
from fastseed import GeneratorPool
from fastseed.seeder.process_lock import process
from fastseed.seeder.recent_scopes import RecentScopes


def draws(s):
    """The first numbers at (1, 7)."""
    s.reseed(1, 7)
    return [random.random(), np.random.random(), torch.rand(()).item()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork_keeps_the_coordinates():
    def states():
        """The next draws of all generators of this process, after putting them at (1, 7)."""
        pool.reseed(1, 7)
        big = fastseed.derive_seeds("bulk", 200_000, task=1)
        drawn = draws(fastseed), torch.rand((), generator=pool[-1]).item()
        return *drawn, big[-1].item(), seen[-1]

    def child():
        s = fastseed.derivation.context.seeder
        untouched = torch.equal(inherited, torch.get_rng_state())
        return repr(s), s.scope, (s.master_seed, s.rank, s.world_size), untouched, states()

    torch.set_num_threads(2)
    fastseed.init(42, rank=3, world_size=8)
    seen = []
    fastseed.register_generator(seen.append)
    pool = GeneratorPool([torch.Generator() for _ in range(500)], "pool")
    parent = states()  # so that thread pools exist before the fork
    fastseed.reseed(2, 5, 9)
    inherited, shown = torch.get_rng_state(), repr(fastseed.derivation.context.seeder)
    assert in_child(child) == (shown, (2, 5, 9), (42, 3, 8), True, parent)


def test_another_process_has_the_coordinates_and_the_sender_says_what_is_left_out(caplog):
    s = seeder(42, rank=3, world_size=8)
    s.register_generator(lambda seed: None)  # no pickle takes this
    s.register_generator(torch.Generator(), name="mine")
    s.reseed(2, 5, 9)
    shown, there = alone(shown_and_drawn, s)
    for part in ("master_seed=42", "rank=3", "world_size=8", "task=2, epoch=5, step=9"):
        assert part in shown
    (said,) = caplog.messages
    assert "without its registered generators ['generator/0', 'mine']" in said
    assert there == draws(s)


def shown_and_drawn(s):
    return repr(s), draws(s)


def test_pickle_changes_no_generator_and_keeps_the_original(caplog):
    s, seen = seeder(42, rank=3, world_size=8), []
    assert repr(pickle.loads(pickle.dumps(s))) == repr(s) and caplog.records == []
    s.register_generator(seen.append)
    before = snapshot()
    twin = pickle.loads(pickle.dumps(s))
    assert snapshot() == before
    twin.reseed(1, 2)
    assert seen == []
    expected = snapshot()
    s.reseed(1, 2)
    assert snapshot() == expected and len(seen) == 1


def test_pickle_keeps_that_ranks_do_not_agree(caplog):
    with caplog.at_level(logging.CRITICAL, logger="fastseed"):
        s = fastseed.Seeder(None, rank=0, world_size=2)
    for twin in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s)):
        assert twin.master_seed == s.master_seed
        with pytest.raises(RuntimeError, match="ranks cannot share a stream"):
            twin.register_generator(print, shared=True)


def untemper(words: np.ndarray) -> np.ndarray:
    """The MT19937 state words behind its outputs."""
    y = words.astype(np.uint64)
    y ^= y >> np.uint64(18)
    y ^= (y << np.uint64(15)) & np.uint64(0xEFC60000)
    shifted = y.copy()
    for _ in range(4):
        shifted = y ^ ((shifted << np.uint64(7)) & np.uint64(0x9D2C5680))
    y = shifted & np.uint64(0xFFFFFFFF)
    shifted = y.copy()
    for _ in range(2):
        shifted = y ^ (shifted >> np.uint64(11))
    return shifted


def one_stream(drawn: torch.Tensor) -> bool:
    """Return whether 64-bit draws are consecutive words of a single MT19937 stream."""
    values = drawn.numpy().view(np.uint64)
    low32 = np.uint64(0xFFFFFFFF)
    words = np.stack([values >> np.uint64(32), values & low32], axis=1).ravel()
    x = untemper(words)
    mixed = (x[:-1] & np.uint64(0x80000000)) | (x[1:] & np.uint64(0x7FFFFFFF))
    twist = (mixed >> np.uint64(1)) ^ (x[1:] & np.uint64(1)) * np.uint64(0x9908B0DF)
    n = len(x) - 624
    return np.array_equal(x[624:], x[397 : 397 + n] ^ twist[:n])


def draw(generator: torch.Generator, count: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.int64).random_(-(2**63), None, generator=generator)


def race(reseed, generators, seconds=1.0):
    """Call ``reseed`` again and again while threads draw; the number of both, and torn draws."""
    stop, torn, drawn, errors = threading.Event(), [], [], []

    def work(generator):
        try:
            while not stop.is_set():
                if not one_stream(draw(generator, 3000)):
                    torn.append(1)
                drawn.append(1)
        except Exception as error:  # pragma: no cover
            errors.append(error)

    threads = [threading.Thread(target=work, args=(g,)) for g in generators]
    for thread in threads:
        thread.start()
    until, calls = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        reseed(calls)
        calls += 1
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "locked up"
    assert errors == [] and len(torn) == 0
    assert len(drawn) >= 2 and calls >= 2


@pytest.mark.timeout(120)
def test_reseeding_while_other_threads_draw_is_safe():
    """One draw of 6,000 words holds the generator's mutex: no reseed may cut into it."""
    s = seeder()
    own = torch.Generator()
    s.register_generator(own, name="own")
    race(lambda i: s.reseed(1, i), [torch.default_generator, own])
    s.reseed(1, 2**32 - 1)
    assert holds_key(torch.default_generator, s.derive_key("torch.cpu", task=1, epoch=2**32 - 1))
    assert holds_key(own, s.derive_key("own", task=1, epoch=2**32 - 1))


@pytest.mark.costly("threads that draw all the time")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["reseed", "manual_seed"])
def test_reseeding_a_pool_while_other_threads_draw_is_safe(how):
    fastseed.init(42)
    members = [torch.Generator() for _ in range(40)]
    pool = GeneratorPool([torch.default_generator, *members], "pool")
    calls = {
        "reseed": lambda i: pool.reseed(1, i),
        "manual_seed": lambda i: pool.reseed_from_seeds(range(i, i + 41)),
    }
    race(calls[how], [torch.default_generator, members[20]])


@pytest.mark.timeout(120)
def test_a_reseed_waits_for_the_one_of_another_thread():
    """Also of another seeder: the default generators are the same."""
    seeders, inside, most = (seeder(1), seeder(2)), [], []

    def slow(seed):
        inside.append(seed)
        time.sleep(0.02)
        most.append(len(inside))
        inside.remove(seed)

    for s in seeders:
        s.register_generator(slow)
    threads = [threading.Thread(target=s.reseed, args=(1, k)) for k in range(3) for s in seeders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == [1] * 6


@pytest.mark.timeout(120)
def test_two_threads_that_reseed_leave_one_of_the_two_states():
    """Whole states, never a mixture: the last one wins."""
    seeders = seeder(1), seeder(2)
    states = []
    for s in seeders:
        s.reseed(1)
        states.append(torch.get_rng_state())
    for _ in range(200):
        barrier = threading.Barrier(2)

        def work(s, barrier=barrier):
            barrier.wait()
            s.reseed(1)

        threads = [threading.Thread(target=work, args=(s,)) for s in seeders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        found = torch.get_rng_state()
        assert any(torch.equal(found, state) for state in states)


def test_the_scope_of_a_reseed_is_remembered_before_another_thread_can_reseed(monkeypatch):
    """Else a thread remembers the scope of another one, and says that its own repeats."""
    remembered, was_free = [], []

    def probe():
        was_free.append(process.lock.acquire(blocking=False))
        if was_free[-1]:
            process.lock.release()

    def note(self, scope):
        thread = threading.Thread(target=probe)
        thread.start()
        thread.join(30)
        remembered.append(scope)

    monkeypatch.setattr(RecentScopes, "note", note)
    seeder(42).reseed(1, 2, 3)
    assert remembered == [(42, 1, 2, 3)] and was_free == [False]
