"""The numbers of 2,048 neighbouring streams are uncorrelated, side by side and shifted by one.

Of two independent streams of L = 4,096 uniform numbers the correlation r has z = r * sqrt(L),
standard normal. Over the 2,096,128 pairs side by side random streams reach

    max |z| > 6.5   with probability 2.1e6 * 8.0e-11 = 1.7e-4
    max |z| < 4.4   with probability exp(-2.1e6 * 1.1e-5) = 1e-10 (then something was not measured)

and over the 4,194,304 with a shift the same with twice the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from helpers.support import seeder

import fastseed
from fastseed.generators.torch_rng import TorchGenerator

STREAMS, LENGTH = 2048, 4096
HIGHEST, LOWEST = 6.5, 4.4


def draw(generators: Iterable[torch.Generator]) -> torch.Tensor:
    """LENGTH uniform numbers of each: (streams, LENGTH)."""
    rows = [torch.rand(LENGTH, generator=g, dtype=torch.float64) for g in generators]
    return torch.stack(rows)


def standard(numbers: torch.Tensor) -> torch.Tensor:
    """Mean 0 and variance 1, known and not estimated: a stream may not hide in its own mean."""
    return ((numbers - 0.5) * 12**0.5).float()


def score(numbers: torch.Tensor) -> tuple[float, float]:
    """max |z| over pairs of different streams, and over all pairs with one of them shifted."""
    x = standard(numbers)
    side_by_side = x @ x.T / x.shape[1] ** 0.5
    shifted = x[:, :-1] @ x[:, 1:].T / (x.shape[1] - 1) ** 0.5
    side_by_side.fill_diagonal_(0)
    return float(side_by_side.abs().max()), float(shifted.abs().max())


def with_keys(keys: Iterable[int]) -> torch.Tensor:
    generator = torch.Generator()

    def each() -> Iterable[torch.Generator]:
        for key in keys:
            TorchGenerator(generator).seed(key)
            yield generator

    return draw(each())


def neighbouring_ranks() -> torch.Tensor:
    job = seeder(42)
    return with_keys(
        job.derive_key("torch.cpu", task=1, epoch=7, rank=rank) for rank in range(STREAMS)
    )


def neighbouring_epochs() -> torch.Tensor:
    job = seeder(42)
    return with_keys(job.derive_key("torch.cpu", task=1, epoch=epoch) for epoch in range(STREAMS))


def neighbouring_masters() -> torch.Tensor:
    return with_keys(seeder(master).derive_key("torch.cpu", task=1) for master in range(STREAMS))


def members_of_a_pool() -> torch.Tensor:
    fastseed.init(42, rank=0, world_size=1)
    pool = fastseed.GeneratorPool([torch.Generator() for _ in range(STREAMS)], "pool")
    pool.reseed(1, 7)
    return draw(pool[i] for i in range(STREAMS))


NEIGHBOURS = [neighbouring_ranks, neighbouring_epochs, neighbouring_masters, members_of_a_pool]


@pytest.mark.parametrize("streams", NEIGHBOURS)
def test_correlation_of_neighbouring_streams_is_chance(streams: Callable[[], torch.Tensor]):
    side_by_side, shifted = score(streams())
    assert LOWEST < side_by_side < HIGHEST
    assert LOWEST < shifted < HIGHEST


# ---------------------------------------------------------------- what the criterion refuses


def test_correlation_control_seed_plus_rank_plus_epoch():
    """32 ranks in 64 epochs have 95 different streams between them."""
    seeds = [42 + rank + epoch for epoch in range(64) for rank in range(32)]
    side_by_side, _ = score(draw(torch.Generator().manual_seed(seed) for seed in seeds))
    assert side_by_side > 60  # equal streams have sqrt(LENGTH), 64


def test_correlation_control_overlapping_streams():
    """Streams that start one draw apart are caught by the shift, and by nothing else."""
    numbers = torch.rand(
        64 + LENGTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    side_by_side, shifted = score(numbers.unfold(0, LENGTH, 1)[:64])
    assert side_by_side < HIGHEST
    assert shifted > 60
