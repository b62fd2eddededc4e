"""Normal and exponential numbers: moments, distribution, tails, and the two halves of a pair.

N = 2^21 numbers are 512 streams of 4,096. Every score but Kolmogorov's is a z; see
``test_draws_uniform`` for how far the bounds are from chance.
"""

import numpy as np
import pytest
import torch
from helpers.draw_words import bins, correlation, exponentials, keys, kolmogorov, normals, words
from scipy import special, stats

import fastseed
from fastseed._backend.reference import fp_math

STREAMS, LENGTH = 512, 4096
N = STREAMS * LENGTH
HIGHEST = 5.0
MEAN, VARIANCE = (0, 1, 0, 3), (1, 2, 15, 96)  # of x, x^2, x^3, x^4


def count_score(count: int, p: float, n: int = N) -> float:
    """z of a count of n independent events; of Poisson counts too, where they are not small."""
    return float((count - n * p) / np.sqrt(n * p * (1 - p)))


def scores(numbers: np.ndarray) -> dict[str, float]:
    """Score (streams, length) standard normal numbers, those in places 2i, 2i + 1 being pairs."""
    x = numbers.astype(np.float64)
    square = x * x
    sums = (x.sum(), square.sum(), (square * x).sum(), (square * square).sum())
    found = {
        f"moment {k + 1}": float((total - x.size * MEAN[k]) / np.sqrt(x.size * VARIANCE[k]))
        for k, total in enumerate(sums)
    }
    for limit in (3.0, 4.0):
        for side, tail in (("above", x > limit), ("below", x < -limit)):
            p = float(stats.norm.sf(limit))
            found[f"{side} {limit}"] = count_score(int(tail.sum()), p, x.size)
    found["positive"] = count_score(int((x > 0).sum()), 0.5, x.size)
    found["beyond 4"] = count_score(int((square > 16).sum()), 2 * float(stats.norm.sf(4)), x.size)
    whole = (special.ndtr(x) * 4096).astype(np.int64)
    found["values"] = bins(whole, 4096)
    u = whole >> 6
    first, second = slice(0, None, 2), slice(1, None, 2)
    found["halves"] = bins(u[:, first] * 64 + u[:, second], 4096)
    found["neighbouring pairs"] = bins(u[:, 1:-1:2] * 64 + u[:, 2::2], 4096)
    found["streams"] = bins(u[0::2] * 64 + u[1::2], 4096)
    angle = np.arctan2(x[:, second], x[:, first]) / (2 * np.pi) % 1
    found["angles"] = bins((angle * 4096).astype(np.int64) % 4096, 4096)
    radius = -np.expm1(-(square[:, first] + square[:, second]) / 2)
    polar = (radius * 64).astype(np.int64).clip(0, 63) * 64 + (angle * 64).astype(np.int64)
    found["angles and radii"] = bins(polar.clip(0, 4095), 4096)
    for name, y, variance in (("", x, 1.0), (" of squares", square - 1, 2.0)):
        found[f"halves{name}"] = correlation(y[:, first], y[:, second], variance)
        found[f"streams{name}"] = correlation(y[:-1], y[1:], variance)
        for lag in (*range(1, 9), 64):
            found[f"lag {lag}{name}"] = correlation(y[:, :-lag], y[:, lag:], variance)
    return found


def worst(found: dict[str, float]) -> float:
    return max(abs(z) for z in found.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_normal_is_random(dtype):
    numbers = fastseed.random.normal(keys(STREAMS), (LENGTH,), dtype=dtype).numpy()
    found = scores(numbers)
    assert 1.0 < worst(found) < HIGHEST, found
    assert 0.35 < kolmogorov(special.ndtr(numbers.astype(np.float64))) < 2.6
    # Beyond 5 there are 1.2 of two million: 12 would be one chance in 10^8.
    assert (np.abs(numbers) > 5).sum() < 12


def exponential_scores(numbers: np.ndarray) -> dict[str, float]:
    x = numbers.astype(np.float64)
    u = -np.expm1(-x)
    whole = (u * 64).astype(np.int64).clip(0, 63)
    found = {
        "mean": float((x - 1).sum() / np.sqrt(x.size)),
        "squares": float((x**2 - 2).sum() / np.sqrt(20 * x.size)),  # E x^4 - 4 = 24 - 4
        "above 10": count_score(int((x > 10).sum()), np.exp(-10), x.size),
        "below 1e-4": count_score(int((x < 1e-4).sum()), -np.expm1(-1e-4), x.size),
        "values": bins((u * 4096).astype(np.int64).clip(0, 4095), 4096),
        "pairs": bins(whole[:, 0::2] * 64 + whole[:, 1::2], 4096),
        "streams": bins(whole[0::2] * 64 + whole[1::2], 4096),
    }
    for lag in (1, 2, 3, 4, 8):
        found[f"lag {lag}"] = correlation(x[:, :-lag] - 1, x[:, lag:] - 1)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_exponential_is_random(dtype):
    numbers = fastseed.random.exponential(keys(STREAMS), (LENGTH,), dtype=dtype).numpy()
    found = exponential_scores(numbers)
    assert 0.5 < worst(found) < HIGHEST, found
    assert 0.35 < kolmogorov(-np.expm1(-numbers.astype(np.float64))) < 2.6
    # The largest of N is ln N + g = 14.6 + g: Gumbel's g is outside (-3, 14) once in 10^6.
    assert 11.6 < numbers.max() < 28.6


def polar(radius: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Pairs of radii and of words for angles."""
    cos, sin = fp_math.cos_sin(turn)
    return np.stack((radius * cos, radius * sin), axis=-1).reshape(*radius.shape[:-1], -1)


def radii(w: np.ndarray) -> np.ndarray:
    return np.sqrt(2 * exponentials(w))


DAMAGE = {
    "one word for radius and angle": lambda w: polar(radii(w[:, 0::2]), w[:, 0::2]),
    "the tail cut at 3.9": lambda w: polar(radii(w[:, 0::2] | np.uint32(0x1FFFFF)), w[:, 1::2]),
    "angles of 8 bits": lambda w: polar(radii(w[:, 0::2]), w[:, 1::2] & np.uint32(0xFF000000)),
    "a hundredth too wide": lambda w: normals(w) * np.float32(1.01),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_draws_normal_control(name):
    damaged = DAMAGE[name](words(keys(STREAMS), LENGTH // 4))
    assert worst(scores(damaged)) > 2 * HIGHEST


def test_draws_normal_control_few_rounds():
    for rounds in (3, 4):
        assert worst(scores(normals(words(keys(STREAMS), LENGTH // 4, rounds)))) > 2 * HIGHEST


TRUNCATED = [
    (0.0, 1.0, -2.0, 2.0),
    (0.0, 1.0, -100.0, 100.0),
    (0.0, 1.0, 4.0, 9.0),
    (0.5, 2.0, 0.0, 0.3),
]


def truncated_scores(
    x: np.ndarray, mean: float, std: float, a: float, b: float
) -> dict[str, float]:
    alpha, beta = (a - mean) / std, (b - mean) / std
    far, near = special.ndtr(-beta), special.ndtr(-alpha)  # measured from the right
    u = ((special.ndtr((mean - x) / std) - far) / (near - far)).clip(0, 1 - 2**-53)
    whole = (u * 64).astype(np.int64)
    found = {"values": bins((u * 4096).astype(np.int64), 4096)}
    found["pairs"] = bins(whole[:, 0::2] * 64 + whole[:, 1::2], 4096)
    found["streams"] = bins(whole[0::2] * 64 + whole[1::2], 4096)
    for lag in (1, 2, 3, 4):
        found[f"lag {lag}"] = correlation(u[:, :-lag] - 0.5, u[:, lag:] - 0.5, 1 / 12)
    return found | {"kolmogorov": kolmogorov(u)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bounds", TRUNCATED)
def test_draws_truncated_normal_is_random(bounds, dtype):
    mean, std, a, b = bounds
    made = fastseed.random.trunc_normal(
        keys(STREAMS), (LENGTH,), mean=mean, std=std, a=a, b=b, dtype=dtype
    ).numpy()
    assert made.min() >= a and made.max() <= b
    found = truncated_scores(made.astype(np.float64), *bounds)
    assert 0.35 < found.pop("kolmogorov") < 2.6
    assert worst(found) < HIGHEST, found
