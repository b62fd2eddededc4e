"""Orders that samplers are compared with."""

import fastseed
from fastseed.data import ShuffleSampler

SIZES = (1, 2, 3, 4, 5, 7, 12, 16, 17, 30, 97, 100, 300, 1000)
WORLDS = (1, 2, 3, 4, 5, 8, 64)


def sampler_at(n: int, task: int, epoch: int, master_seed: int, **more) -> ShuffleSampler:
    """A sampler in this scope; ``init`` is called."""
    fastseed.init(master_seed, rank=0, world_size=1)
    sampler = ShuffleSampler(n, **more)
    sampler.set_scope(task, epoch)
    return sampler


def order(n: int, epoch: int = 7, task: int = 1, **more) -> list[int]:
    """The order of an epoch of this job."""
    return ShuffleSampler(n, **more).indices(task=task, epoch=epoch).tolist()


def turns(found: list[list[int]]) -> list[int]:
    """The ranks' indices as they come when ranks take turns."""
    return [index for step in zip(*found, strict=True) for index in step]
