"""Ctrl-C, or the exception of a time limit, at each point at which the interpreter raises it."""

from __future__ import annotations

import itertools
import os
import threading

import numpy as np
import pytest
import torch
from helpers.interrupts import interrupt, interruptions
from helpers.support import scramble, snapshot

import fastseed
from fastseed.derivation import context
from fastseed.seeder.fork_rng.stack import stack

NUMBERS = itertools.count(1)


@pytest.fixture
def job():
    fastseed.init(42, rank=0, world_size=1)
    generator, numpy = torch.Generator(), np.random.default_rng(1)
    fastseed.register_generator(generator, name="torch")
    fastseed.register_generator(numpy, name="numpy/new")
    fastseed.register_generator(np.random.RandomState(1), name="numpy/old")
    fastseed.reseed(1, 5)
    yield context.seeder
    assert stack.blocks == []


def check_no_lock_is_held(where):
    """Draw from every generator in another thread."""

    def draw():
        torch.rand(1), np.random.random()
        for entry in context.seeder.registry.generators:
            if isinstance(entry.generator, torch.Generator):
                torch.rand(1, generator=entry.generator)
            else:
                entry.generator.standard_normal()
        with stack.lock:
            pass

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), where


def check_the_next_reseed(where):
    scramble()
    fastseed.reseed(1, 2**31 + next(NUMBERS))
    context.seeder.set_scope(1, 5, 0)
    assert torch.initial_seed() == fastseed.derive_seed("torch.cpu", task=1, epoch=5), where
    assert context.seeder.scope == (1, 5, 0), where


def test_the_helper_finds_a_lock_that_is_left():
    """Taking a lock before ``try`` leaves it held; ``with`` never does."""
    lock = threading.Lock()

    def unsafe():
        lock.acquire()
        try:
            return 1
        finally:
            lock.release()

    def safe():
        with lock:
            return len("1")

    def release():
        if lock.locked():
            lock.release()

    held = [lock.locked() for _ in interruptions(unsafe, release, within=(__file__,))]
    assert held == [False, True, False]  # entered, acquired, released
    held = [lock.locked() for _ in interruptions(safe, release, within=(__file__,))]
    assert len(held) > 1 and not any(held)
    assert interrupt(safe, 10**6) == ""


# ---------------------------------------------------------------- reseed, init, load_state_dict


def test_reseed_can_be_interrupted_anywhere(job):
    points = 0
    for where in interruptions(lambda: fastseed.reseed(1, next(NUMBERS)), scramble):
        check_no_lock_is_held(where)
        check_the_next_reseed(where)
        points += 1
    assert points > 30


def test_init_can_be_interrupted_anywhere(job):
    def start():
        fastseed.init(7, rank=0, world_size=1)

    for where in interruptions(start, lambda: fastseed.init(42, rank=0, world_size=1)):
        assert fastseed.get_master_seed() in (7, 42)
        check_no_lock_is_held(where)
        check_the_next_reseed(where)


@pytest.mark.slow
def test_load_state_dict_can_be_interrupted_anywhere(job):
    state = fastseed.state_dict(rng=True)
    expected = snapshot()
    for where in interruptions(lambda: fastseed.load_state_dict(state), scramble):
        check_no_lock_is_held(where)
        check_the_next_reseed(where)
        fastseed.load_state_dict(state)
        assert snapshot() == expected, where


# ---------------------------------------------------------------- fork_rng


def one_block(**more):
    with fastseed.fork_rng("a", **more):
        torch.rand(3)


def two_blocks():
    with fastseed.fork_rng("a"):
        torch.rand(3)
        with fastseed.fork_rng("b", index=3):
            torch.rand(3)


def a_named_block():
    block = fastseed.fork_rng("a")
    with block, block:
        torch.rand(3)


@fastseed.fork_rng("a")
def decorated():
    torch.rand(3)


@pytest.mark.parametrize(
    "call",
    [one_block, lambda: one_block(index=2), two_blocks, a_named_block],
)
def test_a_block_can_be_interrupted_anywhere(job, call):
    """The generators are as before it, and the process is outside of all blocks."""
    call()
    context.seeder.set_scope(1, 5, 0)
    outside = snapshot()
    for where in interruptions(call, lambda: context.seeder.set_scope(1, 5, 0), within=(__file__,)):
        assert stack.blocks == [], where
        assert snapshot() == outside, where
        check_no_lock_is_held(where)
        fastseed.reseed(1, next(NUMBERS))


def test_a_decorated_function_can_be_interrupted_but_at_the_entry_of_exit(job):
    """The block outlives its call, so nothing leaves it where ``__exit__`` has not begun."""
    decorated()
    left = []
    for where in interruptions(decorated, lambda: context.seeder.set_scope(1, 5, 0)):
        if stack.blocks:
            left.append(where.split(" ", 1)[1])
            stack.leave(stack.blocks[0])
    assert left in ([], ["__exit__ (entered)"])


# ---------------------------------------------------------------- deterministic


def settings():
    """Return what ``deterministic`` changes."""
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        torch.backends.mkldnn.deterministic,
        torch.backends.cuda.cudnn_sdp_enabled(),
        os.environ.get("NCCL_ALGO"),
    )


def test_deterministic_can_be_interrupted_but_between_two_statements():
    """Every switch is as before, or all are set where the context has not begun or ended."""
    before = settings()

    def call():
        with fastseed.deterministic():
            pass

    with fastseed.deterministic():
        during = settings()
    found = {}
    for where in interruptions(call):
        if settings() != before:
            assert settings() == during, where
            found[where.split(" ", 1)[1]] = fastseed.deterministic()
            restore(before)
    assert set(found) <= {"__enter__ (entered)", "__exit__ (entered)"}


def restore(before):
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    torch.utils.deterministic.fill_uninitialized_memory = before[2]
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before[3:5]
    torch.backends.mkldnn.deterministic = before[5]
    torch.backends.cuda.enable_cudnn_sdp(before[6])
    os.environ.pop("NCCL_ALGO", None)
    if before[7] is not None:
        os.environ["NCCL_ALGO"] = before[7]


# ---------------------------------------------------------------- banks


def test_a_bank_never_has_the_keys_of_one_state_and_the_positions_of_another(job):
    bank = fastseed.random.StreamBank(4, "bank")
    bank.reseed(1, 1)
    bank.uniform(7)
    saved, expected = bank.state_dict(), bank.uniform(3)

    def prepare():
        bank.reseed(1, 2)

    prepare()
    other = bank.uniform(3)
    for where in interruptions(lambda: bank.load_state_dict(saved), prepare):
        try:
            found = bank.uniform(3)
        except RuntimeError as error:
            assert "the bank has no keys yet" in str(error), where
        else:
            assert torch.equal(found, other) or torch.equal(found, expected), where
