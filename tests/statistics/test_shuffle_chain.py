"""How many rounds the shuffle needs: the exact Markov chain of ideal round functions.

With them, round r is a random element: it shifts each column by a number of its own (r even), or
each row. What the distribution of some cells becomes can be computed to the last digit. Distances
are total variation from equally likely; ``docs/spec/derivation.md`` states those of this file.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from helpers.inside import derive, scalar, shuffle


def pair_distance(a: int, b: int, rounds: int) -> float:
    """Distances of two cells, from the worst start: p[row difference, column difference]."""
    worst = 0.0
    for start in ((0, 1), (1, 0), (1, 1)):
        p = np.zeros((a, b))
        p[start] = 1
        for r in range(rounds):
            if r % 2 == 0:  # cells of different columns are shifted apart by any number of rows
                p[:, 1:] = p[:, 1:].mean(0)
            else:
                p[1:, :] = p[1:, :].mean(1, keepdims=True)
        even = np.full((a, b), 1 / (a * b - 1))
        even[0, 0] = 0
        worst = max(worst, 0.5 * float(np.abs(p - even).sum()))
    return worst


def whole_distance(rounds: int) -> float:
    """Distances of all four cells of a 2 x 2 rectangle: the 24 orders."""
    states = list(itertools.permutations(range(4)))
    p = {state: float(state == states[0]) for state in states}
    for r in range(rounds):
        new = dict.fromkeys(states, 0.0)
        for state, chance in p.items():
            for shift in itertools.product(range(2), repeat=2):
                # cells are 2 row + column; each column (row) is shifted by its own number
                if r % 2 == 0:
                    moved = tuple(c ^ 2 * shift[c & 1] for c in state)
                else:
                    moved = tuple(c ^ shift[c >> 1] for c in state)
                new[moved] += chance / 4
        p = new
    return 0.5 * sum(abs(chance - 1 / 24) for chance in p.values())


def test_whole_orders_of_four_cells():
    assert 1e-8 < whole_distance(24) < 8e-8
    assert whole_distance(12) > 1e-4


def test_few_cells():
    assert 1e-8 < pair_distance(4, 4, 24) < 2e-7
    assert pair_distance(4, 4, 12) > 1e-5


@pytest.mark.parametrize(("a", "b"), [(256, 256), (258, 255), (1000, 1001)])
def test_many_cells(a, b):
    assert pair_distance(a, b, 12) < 1e-12
    assert pair_distance(a, b, 2) > 1e-4


def test_more_cells_are_closer():
    found = [pair_distance(side, side, 12) for side in (16, 64, 256, 512)]
    assert found == sorted(found, reverse=True)


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
