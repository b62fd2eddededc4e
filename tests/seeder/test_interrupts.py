"""Ctrl-C, or the exception of a time limit: no lock stays taken, and the next reseed is whole."""

import itertools
import random
import threading

import pytest
import torch
from helpers.interrupts import interruptions
from helpers.support import scramble, snapshot

import fastseed
from fastseed.derivation import context
from fastseed.integrations import run_in_task
from fastseed.seeder.process_lock import process

NUMBERS = itertools.count(1)


@pytest.fixture
def job():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.register_generator(torch.Generator(), name="torch")
    fastseed.reseed(1, 5)
    return context.seeder


def check_no_lock_is_held(where):
    """Draw from torch's generators, and reseed, in another thread."""

    def draw():
        torch.rand(1)
        with process.lock:
            pass

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), where


def nested():
    with fastseed.fork_rng("a"):
        torch.rand(3)
        with fastseed.fork_rng("b", index=3):
            torch.rand(3)


def initialize():
    layer = torch.nn.Linear(3, 4)
    with fastseed.nn.initialize(layer):
        layer.reset_parameters()


CALLS = {
    "reseed": lambda: fastseed.reseed(1, next(NUMBERS)),
    "init": lambda: fastseed.init(42, rank=0, world_size=1),
    "load_state_dict": lambda: fastseed.load_state_dict(STATE),
    "fork_rng": nested,
    "initialize": initialize,
}
STATE: dict[str, object] = {}


SLOW = ("initialize",)  # many points


@pytest.mark.costly("an interrupt at each line")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CALLS]
)
def test_after_an_interrupt_the_next_reseed_gives_the_state_of_a_clean_run(job, name):
    STATE.update(fastseed.state_dict(rng=True))
    job.move(1, 2**31, 0)
    clean, points = snapshot(), 0
    for where in interruptions(CALLS[name], scramble):
        check_no_lock_is_held(where)
        context.seeder.move(1, 2**31, 0)
        assert snapshot() == clean and not process.blocks, where
        points += 1
    assert points > 5


def test_reseed_leaves_a_block_that_an_interrupt_kept_from_being_left(job):
    """As between the return of ``__enter__`` and the block, where no ``__exit__`` follows."""
    fastseed.fork_rng("a").__enter__()
    assert len(process.blocks) == 1
    fastseed.reseed(1, 6)
    assert not process.blocks
    kept = fastseed.fork_rng("a")
    with kept, pytest.raises(RuntimeError, match="inside a fork_rng block"):
        fastseed.reseed(1, 7)


def test_it_comes_back_after_an_error_too():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 2, 3)
    random.random(), torch.rand(1)
    before, state = snapshot(), fastseed.state_dict()
    with pytest.raises(KeyError), run_in_task(2, 5):
        random.random(), torch.rand(1)
        raise KeyError
    with pytest.raises(ValueError, match="task must be in"), run_in_task(-1):
        pass
    assert snapshot() == before and fastseed.state_dict() == state


@pytest.mark.costly("an interrupt at each line")
def test_an_interrupt_that_enters_or_leaves_comes_back_too():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 2, 3)
    random.random(), torch.rand(1)
    before, state, outer = snapshot(), fastseed.state_dict(), fastseed.state_dict(rng=True)

    def run() -> None:
        with run_in_task(2, 5):
            random.random(), torch.rand(1)

    points = 0
    for where in interruptions(run, lambda: fastseed.load_state_dict(outer)):
        points += 1
        assert snapshot() == before and fastseed.state_dict() == state, where
    assert points > 20
