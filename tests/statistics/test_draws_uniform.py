"""Uniform numbers: their values, their low bits, their pairs, and what lies k places on.

N = 2^20 numbers are 256 streams of 4,096. Every score but Kolmogorov's is a z, standard normal for
random numbers; the scores are fixed, and so far from the bounds that no two of them can be meant:

    |z| > 5    with probability 6e-7 (chi-square of 4,096 bins: 7e-7)
    K > 2.6    with probability 3e-6;  K < 0.35 with 3e-4
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers.draw_words import bins, correlation, keys, kolmogorov, uniforms, words

import fastseed

STREAMS, LENGTH = 256, 4096
HIGHEST = 5.0


def places(numbers: np.ndarray, bits: int) -> np.ndarray:
    """u as the integer that it is, of 24 or 53 bits."""
    return (numbers.astype(np.float64) * 2.0**bits).astype(np.int64)


def scores(numbers: np.ndarray, bits: int) -> dict[str, float]:
    """Score (streams, length) numbers with so many bits."""
    u, whole = numbers.astype(np.float64), places(numbers, bits)
    x = (u - 0.5) * 12**0.5
    pairs = (u * 64).astype(np.int64)
    found = {
        "values": bins(whole >> (bits - 12), 4096),
        "low bits": bins(whole & 0xFFF, 4096),
        "middle bits": bins(whole >> 8 & 0xFFF, 4096),
        "pairs": bins(pairs[:, 0::2] * 64 + pairs[:, 1::2], 4096),
        "pairs across": bins(pairs[:, 1:-1:2] * 64 + pairs[:, 2::2], 4096),
        "same place of neighbours": bins(pairs[0::2] * 64 + pairs[1::2], 4096),
        "mean": float(x.sum() / np.sqrt(x.size)),
        "squares": float((x**2 - 1).sum() / np.sqrt(0.8 * x.size)),  # var x^2 is 9/5 - 1
        "streams": correlation(x[:-1], x[1:]),
    }
    for lag in (*range(1, 17), 32, 64, 1024):
        found[f"lag {lag}"] = correlation(x[:, :-lag], x[:, lag:])
    return found


def word_scores(w: np.ndarray) -> dict[str, float]:
    """Score words of 32 bits: three windows, each bit, and whether it is the next one."""
    found = {f"bits from {at}": bins(w >> at & 0xFFF, 4096) for at in (0, 10, 20)}
    for bit in range(32):
        ones, changes = (int((v >> bit & 1).sum()) for v in (w, w ^ w >> 1))
        for name, count in (("ones", ones), ("changes", changes)):
            found[f"{name} at {bit}"] = (count - w.size / 2) / (w.size / 4) ** 0.5
    return found


def worst(found: dict[str, float]) -> float:
    return max(abs(z) for z in found.values())


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 24), (torch.float64, 53)])
def test_draws_uniform_is_random(dtype, bits):
    numbers = fastseed.random.uniform(keys(STREAMS), (LENGTH,), dtype=dtype).numpy()
    found = scores(numbers, bits)
    assert 1.0 < worst(found) < HIGHEST, found
    assert 0.35 < kolmogorov(numbers) < 2.6


def test_draws_bits_are_random():
    for dtype in (torch.uint32, torch.uint64):
        w = fastseed.random.bits(keys(STREAMS), (LENGTH,), dtype=dtype).numpy()
        assert worst(word_scores(w.view(np.uint32))) < HIGHEST


def test_draws_uniform_of_keys_that_count():
    """Keys 0, 1, 2, … in either half: the user's own, of no derivation."""
    count = torch.arange(STREAMS).to(torch.uint64)
    zero = torch.zeros_like(count)
    for pair in ((count, zero), (zero, count), (count, count)):
        numbers = fastseed.random.uniform(torch.stack(pair, 1), (LENGTH,)).numpy()
        assert worst(scores(numbers, 24)) < HIGHEST


def test_draws_uniform_one_draw_after_another():
    """Each row is 1,024 draws of 3 (a block each), and each of these begins after the last."""
    fastseed.init(42, rank=0, world_size=1)
    bank = fastseed.random.StreamBank(STREAMS, "bank")
    bank.reseed(1, 7)
    numbers = torch.cat([fastseed.random.uniform(bank, 3) for _ in range(1024)], 1).numpy()
    assert worst(scores(numbers, 24)) < HIGHEST


DAMAGE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "four low bits are always zero": lambda w: w & ~np.uint32(0xFFF),
    "two words of each block are one": lambda w: np.repeat(w[:, 0::2], 2, axis=1),
    "two streams are one": lambda w: np.repeat(w[0::2], 2, axis=0),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_draws_uniform_control_damaged_words(name):
    damaged = DAMAGE[name](words(keys(STREAMS), LENGTH // 4))
    assert worst(scores(uniforms(damaged), 24)) > 2 * HIGHEST


def test_draws_bits_control_lost_bits():
    """Four low bits of a word, which float32 never shows, are looked at in the words."""
    w = words(keys(STREAMS), LENGTH // 4) & ~np.uint32(15)
    assert worst(scores(uniforms(w), 24)) < HIGHEST
    assert worst(word_scores(w)) > 2 * HIGHEST
