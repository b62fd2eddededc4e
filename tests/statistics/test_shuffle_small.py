"""Orders of few numbers: as likely as each other, as far as thousands of epochs can tell.

Scores are standard normal for random permutations (``shuffle_orders``). There are some 500 of them
here; the largest of so many is above 5 once in 3000 sets of coordinates, and these are fixed: a
score never changes between runs. Controls with fewer rounds must be above.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.shuffle_orders import (
    cells_score,
    is_even,
    mean_score,
    orders,
    rencontres,
    table_score,
    weak_orders,
)

HIGHEST = 5.0
EPOCHS = 4000
SIZES = (*range(2, 41), 48, 49, 63, 64, 65, 100, 101, 144)


def position_score(found: np.ndarray) -> float:
    n = found.shape[1]
    cells = np.arange(n) * n + found
    return table_score(np.bincount(cells.reshape(-1), minlength=n * n).reshape(n, n))


def pair_scores(found: np.ndarray) -> list[float]:
    """Score the ordered pairs of numbers at some pairs of positions."""
    n = found.shape[1]
    places = {(0, 1), (n // 2 - 1, n // 2), (n - 2, n - 1), (0, n - 1), (1, n - 1)}
    scores = []
    for i, j in sorted(places):
        counts = np.bincount(found[:, i] * n + found[:, j], minlength=n * n).reshape(n, n)
        assert not counts.diagonal().any()
        scores.append(cells_score(counts[~np.eye(n, dtype=bool)], len(found) / (n * (n - 1))))
    return scores


def succession_score(found: np.ndarray) -> float:
    """Score how often a number is followed by the next one.

    v and v + 1 stand side by side in (n - 1)! orders, and two such pairs in (n - 2)!: the mean is
    (n - 1) / n and E[S (S - 1)] = (n - 2) / n.
    """
    n = found.shape[1]
    mean = (n - 1) / n
    return mean_score((np.diff(found) == 1).sum(1), mean, (n - 2) / n + mean - mean**2)


def fixed_score(found: np.ndarray) -> float:
    """Score how many numbers are at their own position, against the exact distribution."""
    n, epochs = found.shape[1], len(found)
    expected = rencontres(n) * epochs
    counts = np.bincount((found == np.arange(n)).sum(1), minlength=n + 1)
    large = expected >= 10
    if large.all():
        return cells_score(counts, expected)
    seldom = (~large).nonzero()[0]
    lumped = counts[seldom].sum(), expected[seldom].sum()
    if lumped[1] < 1:  # too seldom for a cell of its own
        assert lumped[0] <= 8
        return cells_score(counts[large], expected[large])
    return cells_score(np.append(counts[large], lumped[0]), np.append(expected[large], lumped[1]))


def parity_score(found: np.ndarray) -> float:
    return mean_score(is_even(found), 0.5, 0.25)


@pytest.fixture(scope="module")
def small() -> dict[int, np.ndarray]:
    return {n: orders(n, EPOCHS) for n in SIZES}


def test_every_number_is_at_every_position_as_often(small):
    for n in SIZES:
        assert abs(position_score(small[n])) < HIGHEST, n


def test_every_pair_is_as_likely(small):
    for n in (4, 5, 6, 7, 9, 12, 16, 17, 25):
        assert np.abs(pair_scores(small[n])).max() < HIGHEST, n


def test_neighbours_are_no_more_often_neighbours(small):
    for n in SIZES:
        assert abs(succession_score(small[n])) < HIGHEST, n


def test_fixed_points_have_their_distribution(small):
    for n in SIZES:
        assert abs(mean_score((small[n] == np.arange(n)).sum(1), 1, 1)) < HIGHEST, n
        assert abs(fixed_score(small[n])) < HIGHEST, n


def test_odd_and_even_orders_are_as_likely(small):
    for n in SIZES:
        assert abs(parity_score(small[n])) < HIGHEST, n


def test_epochs_are_independent(small):
    """Positions at which two epochs agree: fixed points of a random permutation, 1 on average."""
    for n in (5, 16, 17, 40, 100):
        for lag in (1, 2, 3, 7, 64):
            same = (small[n][lag:] == small[n][:-lag]).sum(1)
            assert abs(mean_score(same, 1, 1)) < HIGHEST, (n, lag)
    for n in (5, 17, 100):
        other = orders(n, EPOCHS, master=43)
        assert abs(mean_score((small[n] == other).sum(1), 1, 1)) < HIGHEST, n


def test_sizes_are_independent(small):
    """n is part of the key: the order of n says nothing of that of n + 1."""
    for n in (5, 16, 30, 64):
        same = (small[n] == small[n + 1][:, :n]).sum(1)
        # the chance at each position is 1 / (n + 1); variance from pairs of positions
        mean = n / (n + 1)
        pairs = n * (n - 1) / ((n + 1) * n)
        assert abs(mean_score(same, mean, pairs + mean - mean**2)) < HIGHEST, n


@pytest.mark.parametrize("n", [5, 16])
def test_too_few_rounds_are_found(n):
    assert np.abs(pair_scores(weak_orders(n, EPOCHS // 2, rounds=2))).max() > HIGHEST


def test_odd_sides_would_be_found():
    """Orders that are all even, as those of a rectangle with odd sides are."""
    found = orders(9, EPOCHS)
    odd = ~is_even(found)
    found[odd, :2] = found[odd, 1::-1]
    assert parity_score(found) > HIGHEST
