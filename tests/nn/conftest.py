"""A job for the tests of layers."""

import pytest
import torch.distributed as dist
from helpers.support import restart

import fastseed


@pytest.fixture
def seeded():
    """A job at task 1, epoch 0, step 0."""
    fastseed.init(42, rank=0, world_size=1)
    restart()


@pytest.fixture
def as_rank():
    """Return a function that makes this process one of two ranks, or of more, without the others.

    Only one rank of each number of ranks: torch keeps what it found out for equal meshes.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def become(rank: int, world: int = 2) -> None:
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)

    yield become
    if dist.is_initialized():  # else the test was skipped before
        dist.destroy_process_group()
