"""Integers and Bernoulli numbers: every value is as likely as it should be.

Scores are z, standard normal for random numbers; see ``test_draws_uniform`` for the bounds.
"""

import numpy as np
import pytest
from helpers.draw_words import (
    bins,
    chi_square,
    correlation,
    exponentials,
    keys,
    normals,
    uniforms,
    words,
)

import fastseed

STREAMS, LENGTH = 256, 4096
N = STREAMS * LENGTH
HIGHEST = 5.0
SMALL = (2, 3, 6, 10, 100, 1000, 4096)
LARGE = (
    2**31 + 1,
    3_000_000_000,
    2**32 - 1,
    2**32,
    2**32 + 1,
    10**18,
    2**63 + 1,
    3 << 61,
    2**64 - 1,
)


def offsets(range_: int, n: int = LENGTH) -> list[int]:
    """v - low of n values of each stream."""
    low = -(2**63) if range_ > 2**63 else 0
    values = fastseed.random.randint(keys(STREAMS), (n,), low, low + range_)
    return [v - low for v in values.reshape(-1).tolist()]


@pytest.mark.parametrize("range_", SMALL)
def test_draws_randint_small_ranges(range_):
    values = np.array(offsets(range_))
    counts = np.bincount(values, minlength=range_)
    # Two or three values: their counts themselves are normal, 10^6 / 2 +- 500.
    z = (counts - N / range_) / np.sqrt(N / range_ * (1 - 1 / range_))
    assert np.abs(z).max() < HIGHEST
    if range_ >= 100:
        assert abs(chi_square(counts, N / range_)) < HIGHEST
    x = (values - (range_ - 1) / 2).reshape(STREAMS, LENGTH)
    variance = (range_**2 - 1) / 12
    for lag in (1, 2, 3, 4, 8):
        assert abs(correlation(x[:, :-lag], x[:, lag:], variance)) < HIGHEST
    assert abs(correlation(x[:-1], x[1:], variance)) < HIGHEST


@pytest.mark.parametrize("range_", LARGE)
def test_draws_randint_large_ranges(range_):
    values = offsets(range_, 1024)
    assert min(values) >= 0 and max(values) < range_
    high = np.array([v * 1000 // range_ for v in values])
    assert abs(bins(high, 1000)) < HIGHEST
    low = np.array([v % 1000 for v in values])
    assert abs(bins(low, 1000)) < HIGHEST


def favoured(values: list[int], range_: int, bits: int) -> float:
    """z of how many values have more than their share of the words of so many bits.

    Without rejection v is made from all w with v = floor(w range / 2^bits): some values have one
    such word more than others. Among unbiased values those are as frequent as they are numerous.
    """
    top = 1 << bits
    least = top // range_
    n = sum(-(-(v + 1) * top // range_) - -(-v * top // range_) > least for v in values)
    p = (top - least * range_) / range_
    return (n - len(values) * p) / (len(values) * p * (1 - p)) ** 0.5


@pytest.mark.parametrize("range_", [3 << 30, 3_000_000_000, 3 << 61, 3 << 62])
def test_draws_randint_favours_no_value(range_):
    values, bits = offsets(range_, 128), 32 if range_ < 2**32 else 64
    assert abs(favoured(values, range_, bits)) < HIGHEST
    w = words(keys(STREAMS), 64)
    raw = (w if bits == 32 else w.view("<u8"))[:, :128].reshape(-1).tolist()
    assert favoured([a * range_ >> bits for a in raw], range_, bits) > 2 * HIGHEST


@pytest.mark.parametrize("p", [1e-4, 0.1, 0.25, 0.5, 2 / 3, 0.9, 1 - 1e-4])
def test_draws_bernoulli_rates(p):
    x = fastseed.random.bernoulli(keys(STREAMS), (LENGTH,), p).numpy().astype(np.float64)
    assert abs(x.sum() - N * p) < HIGHEST * (N * p * (1 - p)) ** 0.5
    variance = p * (1 - p)
    if N * variance**2 > 100:  # else the products are too rare for a normal score
        for lag in (1, 2, 3, 4, 8):
            assert abs(correlation(x[:, :-lag] - p, x[:, lag:] - p, variance)) < HIGHEST
        assert abs(correlation(x[:-1] - p, x[1:] - p, variance)) < HIGHEST


def test_draws_integers_controls():
    w = words(keys(STREAMS), LENGTH // 4).astype(np.int64)
    dice = w % 7 % 6  # a fold: one face twice as likely
    counts = np.bincount(dice.reshape(-1), minlength=6)
    assert abs(chi_square(counts, N / 6)) > 2 * HIGHEST
    lost = (w & ~15) % 1000  # four low bits lost
    assert abs(bins(lost, 1000)) > 2 * HIGHEST


def test_draws_words_are_the_librarys():
    streams = keys(37)
    w = words(streams, 25)
    assert np.array_equal(fastseed.random.bits(streams, (100,)).numpy(), w)
    assert np.array_equal(fastseed.random.uniform(streams, (100,)).numpy(), uniforms(w))
    assert np.array_equal(fastseed.random.normal(streams, (100,)).numpy(), normals(w))
    assert np.array_equal(fastseed.random.exponential(streams, (100,)).numpy(), exponentials(w))
    assert not np.array_equal(words(streams, 25, rounds=9), w)
