"""Two million coordinates of a large job: their keys and seeds collide only by chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.derivation_numpy import NARROW_DOMAIN, Level, name_keys, scope_keys, stream_keys

from fastseed._backend import derive
from fastseed._backend.reference import scalar
from fastseed.derivation import scopes, streams

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


# ---------------------------------------------------------------- what the criteria refuse


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
