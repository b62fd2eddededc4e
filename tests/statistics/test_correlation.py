"""The numbers of 2,048 neighbouring streams are uncorrelated, side by side and shifted by one.

Of two independent streams of L = 4,096 uniform numbers the correlation r has z = r * sqrt(L),
standard normal. Over the 2,096,128 pairs side by side random streams reach

    max |z| > 6.5   with probability 2.1e6 * 8.0e-11 = 1.7e-4
    max |z| < 4.4   with probability exp(-2.1e6 * 1.1e-5) = 1e-10 (then something was not measured)

and over the 4,194,304 with a shift the same with twice the pairs.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from helpers.derivation_numpy import NARROW_DOMAIN, Level, name_keys, scope_keys, stream_keys
from helpers.support import seeder

import fastseed
from fastseed._backend import derive
from fastseed._backend.reference import scalar
from fastseed.derivation import scopes, streams
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


MASTER, RANKS, EPOCHS, TASKS = 42, 10_000, 100, 2
N = RANKS * EPOCHS * TASKS
NAMES = ("python", "numpy", "torch.cpu", "torch.cuda")


def equal_pairs(values: np.ndarray) -> int:
    """How many pairs of entries are equal: 0 exactly when all are different."""
    _, counts = np.unique(values, return_counts=True)
    counts = counts.astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def birthday(n: int, bits: int) -> tuple[float, float]:
    """Mean and five standard deviations of ``equal_pairs`` of n random numbers of so many bits.

    Each of the n (n - 1) / 2 pairs is equal with probability 2**-bits; the pairs are so nearly
    independent that the count is Poisson's. For two million numbers of 32 bits: 466 +- 108; of 64
    bits 1e-7, so that a single pair refutes randomness.
    """
    mean = n * (n - 1) / 2 / 2**bits
    return mean, 5 * math.sqrt(mean)


def collides_by_chance(values: np.ndarray, bits: int) -> bool:
    """The criterion: as many equal pairs as random numbers of so many bits have."""
    mean, margin = birthday(len(values), bits)
    return abs(equal_pairs(values) - mean) < margin if mean > 1 else equal_pairs(values) == 0


SOME_POINTS = ((0, 0, 0), (1, 7, 3), (TASKS - 1, EPOCHS - 1, RANKS - 1))  # task, epoch, rank


def stream_at(name: str, task: int, epoch: int, rank: int) -> streams.Stream:
    return streams.stream(MASTER, scopes.Scope(task, epoch, 0), name, rank)


def name_at_every_point(name: str) -> Level:
    """Return the scopes of every task and epoch."""
    task, epoch = np.divmod(np.arange(TASKS * EPOCHS, dtype=np.uint64), np.uint64(EPOCHS))
    return name_keys(scope_keys(MASTER, task, epoch, 0), *scalar.name_words(name))


def job_keys(name: str) -> np.ndarray:
    """The keys of every rank, epoch and task: (N, 2)."""
    level = name_at_every_point(name)
    ranks = np.arange(RANKS, dtype=np.uint64)
    found = stream_keys(Level(level.key[:, None], level.tweak[:, None]), ranks, 0, 0)
    for t, e, r in SOME_POINTS:
        key = stream_at(name, t, e, r).key()
        assert found[t * EPOCHS + e, r].tolist() == [key & 2**64 - 1, key >> 64]
    return found.reshape(N, 2)


def narrow_seeds(name: str, bits: int) -> np.ndarray:
    """Return what a callable of so many bits gets: (points, RANKS)."""
    keys = stream_keys(name_at_every_point(name), 0, 0, 0, domain=NARROW_DOMAIN)
    found = torch.empty(len(keys), RANKS, dtype=torch.int64)
    for (lo, hi), row in zip(keys.tolist(), found, strict=True):
        derive.fill_shuffle(row, lo | hi << 64, 1 << bits, 0, 1)
    for t, e, r in SOME_POINTS:
        assert int(found[t * EPOCHS + e, r]) == stream_at(name, t, e, r).seed(bits)
    return found.numpy().astype(np.uint64)


@pytest.fixture(scope="module")
def keys() -> np.ndarray:
    return job_keys("torch.cuda")


def test_uniqueness_no_two_seeds_of_64_bits_are_equal(keys):
    assert len(keys) == 2_000_000
    assert collides_by_chance(keys[:, 0], 64) and equal_pairs(keys[:, 0]) == 0
    assert collides_by_chance(keys[:, 1], 64) and equal_pairs(keys[:, 1]) == 0


@pytest.mark.parametrize("word", range(4))
def test_uniqueness_words_of_32_bits_collide_by_chance(keys, word):
    values = keys[:, word // 2] >> np.uint64(32 * (word % 2)) & np.uint64(2**32 - 1)
    assert collides_by_chance(values, 32), equal_pairs(values)


def test_uniqueness_across_the_streams_of_a_job(keys):
    """Eight million: the built-in streams do not meet each other either (chance 2e-6)."""
    seeds = np.concatenate([keys[:, 0], *(job_keys(n)[:, 0] for n in NAMES if n != "torch.cuda")])
    assert len(seeds) == 4 * N
    assert equal_pairs(seeds) == 0


@pytest.mark.parametrize("bits", [31, 32])
def test_uniqueness_of_narrow_seeds(bits):
    """Never between ranks at one point; between points as of random numbers of so many bits."""
    seeds = narrow_seeds("generator/0", bits)
    assert all(len(np.unique(point)) == RANKS for point in seeds)
    pairs = (N * (N - 1) - N * (RANKS - 1)) / 2  # of different points
    mean = pairs / 2**bits
    assert abs(equal_pairs(seeds.ravel()) - mean) < 5 * math.sqrt(mean)


def test_uniqueness_control_one_bit_less_is_noticed(keys):
    """31-bit seeds have 931 equal pairs, 21 standard deviations too many."""
    values = keys[:, 0] & np.uint64(2**31 - 1)
    assert not collides_by_chance(values, 32)
    assert collides_by_chance(values, 31)


def test_uniqueness_control_counting_is_noticed():
    """Distinct by counting, as ``seed + n`` is: no pair at all, where chance has 466."""
    assert not collides_by_chance(np.arange(N, dtype=np.uint64), 32)


def test_uniqueness_control_seed_plus_rank_repeats_seeds():
    """``seed + rank + epoch``: a rank's seed is its neighbour's of the epoch before."""
    rank, epoch = np.meshgrid(np.arange(RANKS), np.arange(EPOCHS))
    seeds = (MASTER + rank + epoch).ravel().astype(np.uint64)
    assert not collides_by_chance(seeds, 64)
    assert len(np.unique(seeds)) == RANKS + EPOCHS - 1  # of a million
