"""Many orders at once, and scores: standard normal for random permutations.

A score of chi-square is its cube root, scaled (Wilson and Hilferty, 1931): normal enough in the
tails from a few degrees of freedom on.
"""

import math

import numpy as np
import torch

from helpers.inside import derive, scalar, shuffle

NAME = scalar.name_words("shuffle")


def orders(n: int, count: int, positions: int | None = None, master: int = 42) -> np.ndarray:
    """The orders of n in epochs 0 to count - 1, the first ``positions`` (or all): (count, -)."""
    out = torch.empty(count, positions or n, dtype=torch.int64)
    for epoch in range(count):
        key = derive.shuffle_key(derive.scope_key(master, 1, epoch, 0), NAME, n)
        derive.fill_shuffle(out[epoch], key, n, 0, 1)
    return out.numpy()


def weak_orders(n: int, count: int, rounds: int) -> np.ndarray:
    """The same with another number of rounds: what scores have to find."""
    before = shuffle.rounds
    shuffle.rounds = lambda n: rounds
    try:
        found = []
        for epoch in range(count):
            key = derive.shuffle_key(derive.scope_key(42, 1, epoch, 0), NAME, n)
            found.append(shuffle.indices(key, n, 0, 1, n))
    finally:
        shuffle.rounds = before
    return np.stack(found)


def chi_score(x: float, freedom: float) -> float:
    """Return the score of a chi-square value."""
    mean, variance = 1 - 2 / (9 * freedom), 2 / (9 * freedom)
    return ((x / freedom) ** (1 / 3) - mean) / math.sqrt(variance)


def cells_score(counts: np.ndarray, expected: np.ndarray | float) -> float:
    """Return the score of counts of independent trials, one of which is decided by the others."""
    return chi_score(float(((counts - expected) ** 2 / expected).sum()), counts.size - 1)


def table_score(counts: np.ndarray) -> float:
    """Return the score of a table: how often each number was at each position; equal sums.

    Permutation matrices span (n - 1)^2 dimensions, in each of which the sum has a variance of
    1 / (n - 1); so (n - 1) / n times the usual statistic is chi-square with so many degrees.
    """
    n = len(counts)
    expected = counts.sum() / n**2
    x = float(((counts - expected) ** 2 / expected).sum()) * (n - 1) / n
    return chi_score(x, (n - 1) ** 2)


def blocks_score(numbers: np.ndarray, n: int, blocks: int) -> float:
    """Return the score of the table (block of positions, block of numbers) of one whole order.

    All margins are given: chi-square with (blocks - 1)^2 degrees, times n / (n - 1).
    """
    rows = np.arange(n) * blocks // n
    columns = numbers * blocks // n
    counts = np.bincount(rows * blocks + columns, minlength=blocks**2).reshape(blocks, blocks)
    expected = np.outer(counts.sum(1), counts.sum(0)) / n
    x = float(((counts - expected) ** 2 / expected).sum()) * (n - 1) / n
    return chi_score(x, (blocks - 1) ** 2)


def mean_score(values: np.ndarray, mean: float, variance: float) -> float:
    """Return the score of the mean of independent values."""
    return float((values.mean() - mean) / math.sqrt(variance / values.size))


def is_even(found: np.ndarray) -> np.ndarray:
    """Return whether each row is an even permutation."""
    inversions = np.zeros(len(found), np.int64)
    for i in range(found.shape[1]):
        inversions += (found[:, i : i + 1] > found[:, i + 1 :]).sum(1)
    return inversions % 2 == 0


def rencontres(n: int) -> np.ndarray:
    """P(k fixed points) of a random permutation of n, k = 0 ... n (Montmort, 1708)."""
    derangements = [1, 0]
    for m in range(2, n + 1):
        derangements.append((m - 1) * (derangements[-1] + derangements[-2]))
    return np.array(
        [math.comb(n, k) * derangements[n - k] / math.factorial(n) for k in range(n + 1)]
    )
