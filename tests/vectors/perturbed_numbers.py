"""Perturbed numbers, from the text of the specification alone.

Written from ``docs/spec/perturb.md``, on the exact fractions and plain integers of the programs
beside it. It imports nothing of fastseed.
"""

import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import exact_draws
from exact_draws import FORMATS, Draw, Real, number
from make_vectors import key_at, scope_of

SHARED, STREAM = 2**24 - 1, 2
Key = tuple[int, int]


def key_of_seed(seed: int, noise: str, name: str) -> Key:
    """The key of a seed of 64 bits."""
    return key_at(scope_of(seed, 0, 0, 0), f"perturb/{noise}/{name}", SHARED, 0, 0, STREAM)


def key_of_key(key: int, noise: str, name: str) -> Key:
    """The key of a key of 128 bits."""
    scope = key & 2**64 - 1, key >> 64
    return key_at(scope, f"perturb/{noise}/{name}", SHARED, 0, 0, STREAM)


def noise_at(key: Key, noise: str, j: int, kind: str) -> Fraction:
    """z of element j in a type of computation."""
    at = Draw(*key, 0, j, 1)
    if noise == "normal":
        return exact_draws.normal(at, kind, j, number(0, kind), number(1, kind))
    return Fraction(1 - 2 * (at.word(j // 32) >> j % 32 & 1))


def moved(
    p: Fraction, j: int, entries: Iterable[tuple[Key, float]], noise: str, dtype: str,
    each: bool = False,
) -> Fraction:  # fmt: skip
    """Element j, of a finite value p, after entries of a key and a scale."""
    kind = exact_draws.computing(dtype)
    total = number(p, kind)
    for key, scale in entries:
        z = Real(noise_at(key, noise, j, kind), FORMATS[kind])
        total = total + number(scale, kind) * z
        if each:
            total = number(FORMATS[dtype].round(total.exact), kind)
    return FORMATS[dtype].round(total.exact)
