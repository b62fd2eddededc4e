"""Orders of many numbers, where structure would show: rows, columns, neighbours, blocks.

Scores are standard normal for random permutations; see ``test_shuffle_small`` for the bound.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.shuffle_orders import NAME, blocks_score, cells_score, mean_score, orders

from fastseed._backend import derive
from fastseed._backend.reference import shuffle

HIGHEST = 5.0
COUNT = 1 << 18
WHOLE = (65536, 65537, 250_000, 10**6 + 3)
HUGE = (10**9, 2**32 + 1, 2**48)


def part(n: int, start: int, stride: int, count: int, epoch: int = 0) -> np.ndarray:
    key = derive.shuffle_key(derive.scope_key(42, 1, epoch, 0), NAME, n)
    out = torch.empty(count, dtype=torch.int64)
    derive.fill_shuffle(out, key, n, start, stride)
    return out.numpy()


def bin_score(numbers: np.ndarray, n: int, bins: int = 1024) -> float:
    """Score numbers of [0, n), independent as long as they are few."""
    at = (numbers.astype(np.float64) / n * bins).astype(np.int64)
    return cells_score(np.bincount(at, minlength=bins), len(numbers) / bins)


@pytest.mark.parametrize("n", WHOLE)
def test_blocks_of_positions_hold_blocks_of_numbers(n):
    found = orders(n, 1)[0]
    for blocks in (2, 10, 100):
        assert abs(blocks_score(found, n, blocks)) < HIGHEST


@pytest.mark.parametrize("n", WHOLE)
def test_serial_correlation(n):
    """Score neighbours in the order: -1 / (n - 1) on average, with a variance of 1 / n."""
    x = orders(n, 1)[0].astype(np.float64)
    x = (x - (n - 1) / 2) / math.sqrt((n * n - 1) / 12)
    a, _ = shuffle.sides(n)
    for lag in (1, 2, a, n // a):
        assert abs(float((x[lag:] * x[:-lag]).mean()) + 1 / n) * math.sqrt(n - lag) < HIGHEST


@pytest.mark.parametrize("n", WHOLE)
def test_fixed_points_and_successions_are_poisson(n):
    found = orders(n, 40)
    fixed, next_ = (found == np.arange(n)).sum(1), (np.diff(found) == 1).sum(1)
    again = (found[1:] == found[:-1]).sum(1)
    for counts in (fixed, next_, again):
        assert abs(mean_score(counts, 1, 1)) < HIGHEST
        assert counts.max() <= 9  # P(Poisson(1) > 9) is 10^-7


@pytest.mark.parametrize("n", HUGE)
def test_any_part_of_a_huge_order_is_uniform(n):
    _, b = shuffle.sides(n)
    most = n // COUNT - 1
    for start, stride in (
        (0, 1),
        (n - COUNT, 1),
        (5, min(b, most)),
        (7, min(b - 1, most)),
        (1, most),
    ):
        found = part(n, start, stride, COUNT)
        assert abs(bin_score(found, n)) < HIGHEST, (start, stride)
        for lag in (1, 2, 16):  # differences modulo n are uniform, but for 0
            step = (found[lag:] - found[:-lag]) % n
            assert abs(bin_score(step[:: lag + 1], n)) < HIGHEST, (start, stride, lag)


@pytest.mark.parametrize("n", HUGE)
def test_one_position_over_epochs(n):
    found = orders(n, 20_000, positions=2)
    assert abs(bin_score(found[:, 0], n, 100)) < HIGHEST
    assert abs(bin_score((found[:, 1] - found[:, 0]) % n, n, 100)) < HIGHEST
    assert abs(bin_score((found[1:, 0] - found[:-1, 0])[::2] % n, n, 100)) < HIGHEST


def test_what_is_no_shuffle_is_found():
    n = 65536
    for wrong in (np.arange(n), np.arange(n)[::-1], np.arange(n) * 5 % n):
        assert blocks_score(wrong, n, 100) > HIGHEST or blocks_score(wrong, n, 100) < -HIGHEST
    assert abs(bin_score(np.arange(COUNT), 10**9)) > HIGHEST
