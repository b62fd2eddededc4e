"""integrations.run_in_task: another task for a block, and every generator as before after it."""

import random

import pytest
import torch
from helpers.interrupts import interruptions
from helpers.support import snapshot

import fastseed
from fastseed.integrations import run_in_task


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
