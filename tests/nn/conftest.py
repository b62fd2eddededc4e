"""A job for the tests of layers."""

import pytest
from helpers.support import restart

import fastseed


@pytest.fixture
def seeded():
    """A job at task 1, epoch 0, step 0."""
    fastseed.init(42, rank=0, world_size=1)
    restart()
