"""Words of many streams with any number of rounds, and what draws make of words.

Statistics need a generator that is known to be too weak, and words that someone has damaged:
``test_draws_integers`` ties the arrays here to the library.
"""

import numpy as np
import torch

from fastseed._backend.reference import fp_math
from helpers.derivation_numpy import HALF, LOW, ROUNDS, philox
from helpers.support import seeder


def keys(n: int, name: str = "draws") -> torch.Tensor:
    """Keys of n neighbouring streams of one job: (n, 2) torch.uint64."""
    return seeder().derive_keys(name, n, task=1, epoch=7)


def words(streams: torch.Tensor, blocks: int, rounds: int = ROUNDS) -> np.ndarray:
    """Words of the streams from position 0 on: (n, 4 * blocks) uint32."""
    lo, hi = streams.numpy().T[..., None]
    i = np.arange(blocks, dtype=np.uint64)
    low, high = philox(lo, i & LOW, i >> HALF, hi & LOW, hi >> HALF, rounds)
    both = np.stack(np.broadcast_arrays(low, high), axis=-1).astype("<u8")
    return both.view("<u4").reshape(len(streams), -1)


def uniforms(w: np.ndarray) -> np.ndarray:
    """Return ``rand`` of words, as float64."""
    return (w >> np.uint32(8)) * 2.0**-24


def normals(w: np.ndarray) -> np.ndarray:
    """Return ``randn`` of words."""
    return fp_math.standard_normal(w)


def exponentials(w: np.ndarray) -> np.ndarray:
    """Return ``exponential`` of words."""
    return fp_math.standard_exponential(w)


def chi_square(counts: np.ndarray, expected: np.ndarray | float) -> float:
    """Pearson's statistic as a nearly standard normal z, for many degrees of freedom."""
    df = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - df) / np.sqrt(2 * df))


def bins(values: np.ndarray, n: int) -> float:
    """z of integers in [0, n) being equally likely."""
    return chi_square(np.bincount(values.reshape(-1), minlength=n), values.size / n)


def kolmogorov(values: np.ndarray) -> float:
    """sqrt(n) times the largest distance of the distribution of ``values`` from U(0, 1).

    For random numbers K has P(K > x) = 2 exp(-2 x^2) (nearly, x > 1); P(K < 0.35) = 3e-4.
    """
    x = np.sort(values.reshape(-1).astype(np.float64))
    i = np.arange(len(x))
    return float(max((x - i / len(x)).max(), ((i + 1) / len(x) - x).max()) * np.sqrt(len(x)))


def correlation(x: np.ndarray, y: np.ndarray, variance: float = 1.0) -> float:
    """z of the mean of x y, both of mean 0 and known variance: a stream hides in nothing."""
    return float((x * y).sum() / np.sqrt(x.size) / variance)
