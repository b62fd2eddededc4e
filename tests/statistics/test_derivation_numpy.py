"""The arrays that the statistics look at are what the library derives."""

from __future__ import annotations

import pytest
from helpers.derivation_numpy import BITS, arbitrary, coordinate_keys, philox

from fastseed._backend import derive

# Random123 1.x, tests/kat_vectors, "philox4x32 7": key, counter, result.
SEVEN_ROUNDS = [
    (0, (0, 0, 0, 0), "5f6fb709 0d893f64 4f121f81 4f730a48"),
    (2**64 - 1, (2**32 - 1,) * 4, "5207ddc2 45165e59 4d8ee751 8c52f662"),
    (
        0x299F31D0A4093822,
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        "4dfccaba 190a87f0 c47362ba b6b5242a",
    ),
]


@pytest.mark.parametrize(("key", "counter", "words"), SEVEN_ROUNDS)
def test_derivation_numpy_gives_published_answers_at_seven_rounds(key, counter, words):
    w = [int(word, 16) for word in words.split()]
    lo, hi = philox(key, *counter, rounds=7)
    assert (int(lo), int(hi)) == (w[0] | w[1] << 32, w[2] | w[3] << 32)


def test_derivation_numpy_is_the_library_at_ten_rounds():
    n = 2000
    at = {name: arbitrary(f"tie {name}", n, 2**bits) for name, bits in BITS.items()}
    found = coordinate_keys(at)
    for k in range(n):
        c = {name: int(values[k]) for name, values in at.items()}
        scope = derive.scope_key(c["master"], c["task"], c["epoch"], c["step"])
        name = derive.name_key(scope, (c["name_lo"], c["name_hi"]))
        key = derive.stream_key(name, c["rank"], c["worker"], c["index"])
        assert found[k].tolist() == [key & 2**64 - 1, key >> 64]
