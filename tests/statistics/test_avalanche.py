"""Every input bit of every coordinate flips every bit of the key half of the time.

For an input bit, 2**14 coordinates are taken with and without it. The number of keys that differ
in output bit j is Binomial(2**14, 1/2), so z = (count - 2**13) / 2**6 is standard normal. Over the
432 input bits and 128 output bits (55,296 pairs) random functions reach

    max |z| > 5.5   with probability 55,296 * 3.8e-8 = 0.0021
    max |z| < 3.4   with probability exp(-55,296 * 6.7e-4) = 8e-17 (then something was not measured)
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.derivation_numpy import (
    BITS,
    arbitrary,
    coordinate_keys,
    coordinate_name,
)

from fastseed._backend.reference import scalar

SAMPLES = 2**14
HIGHEST, LOWEST = 5.5, 3.4
NAMES = ("python", "numpy", "torch.cpu", "torch.cuda", "torch.xpu", "torch.mps", "pool", "sample")


def random_coordinates() -> dict[str, np.ndarray]:
    """From anywhere in the range of each coordinate."""
    return {name: arbitrary(f"any {name}", SAMPLES, 2**bits) for name, bits in BITS.items()}


def small_coordinates() -> dict[str, np.ndarray]:
    """As jobs have them: small integers, and names of the library's own."""
    at = {name: arbitrary(f"small {name}", SAMPLES, 128) for name in BITS}
    words = np.array([scalar.name_words(name) for name in NAMES], np.uint64)
    lo, hi = words[at["name_lo"] % np.uint64(len(words))].T
    return {**at, "name_lo": lo, "name_hi": hi}


def flips(at: dict[str, np.ndarray], rounds: int) -> dict[tuple[str, int], np.ndarray]:
    """For each (coordinate, bit) the z of all 128 bits of the key."""
    known = coordinate_name(at, rounds)
    before = coordinate_keys(at, rounds, known)
    found = {}
    for name, bits in BITS.items():
        same = known if name in ("rank", "worker", "index") else None
        for bit in range(bits):
            flipped = {**at, name: at[name] ^ np.uint64(1 << bit)}
            changed = before ^ coordinate_keys(flipped, rounds, same)
            bits_of = np.unpackbits(changed.view(np.uint8), axis=1)
            counts = bits_of.sum(axis=0, dtype=np.int64)
            found[name, bit] = (counts - SAMPLES / 2) / np.sqrt(SAMPLES / 4)
    return found


def score(found: dict[tuple[str, int], np.ndarray]) -> float:
    """max |z| over every input and output bit."""
    assert len(found) == sum(BITS.values()) == 432
    return float(max(np.abs(z).max() for z in found.values()))


COORDINATES = pytest.mark.parametrize("coordinates", [random_coordinates, small_coordinates])


@COORDINATES
def test_avalanche_every_input_bit_flips_every_output_bit(coordinates):
    assert LOWEST < score(flips(coordinates(), rounds=10)) < HIGHEST


@COORDINATES
def test_avalanche_control_six_rounds_are_not_enough(coordinates):
    """As in the paper, which calls Philox4x32 crush-resistant from seven rounds on."""
    assert score(flips(coordinates(), rounds=6)) > 40
