"""The known answers of draws have every distribution, dtype and edge; functions of words."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from helpers import vectors
from helpers.vectors import Draw, Real, draw_rows, parse_draw, real_rows

from fastseed._backend.reference import fp_math, scalar

REALS = ("float16", "bfloat16", "float32", "float64")
DTYPES = {
    "bits": ("uint32", "uint64"),
    "uniform": REALS,
    "normal": REALS,
    "exponential": REALS,
    "bernoulli": ("bool", "uint8", *REALS),
    "randint": ("uint8", "int32", "int64"),
    "trunc_normal": REALS,
}


def test_draw_vectors_cover_what_they_should():
    rows = draw_rows()
    assert {(r.distribution, r.dtype) for r in rows} == {
        (distribution, dtype) for distribution, dtypes in DTYPES.items() for dtype in dtypes
    }
    for distribution, dtypes in DTYPES.items():
        for dtype in dtypes:
            mine = [r for r in rows if (r.distribution, r.dtype) == (distribution, dtype)]
            assert {r.position for r in mine} >= {0, 4, 5, 2**33, 2**56 - 64}
            assert any(r.first % 2 for r in mine)
            assert any(r.first >= 2**33 for r in mine)
            assert max(len(r.values) for r in mine) > 128  # more than the widest vector group
    ranges = {r.parameters[1] for r in rows if r.distribution == "randint"}
    assert ranges >= {1, 2, 6, 2**31 + 1, 3 * 10**9, 2**32 - 1, 2**32, 2**63 + 1, 2**64 - 1}
    assert Counter((r.function, r.dtype) for r in real_rows()).keys() == {
        (function, dtype) for function in vectors.FUNCTIONS for dtype in ("float32", "float64")
    }


def candidates(row: Draw) -> list[int]:
    """How many words each value of a randint row took, counted with the derivation's block."""
    span = row.parameters[1]
    words = 2 if span >> 32 else 1
    top, b = 2 ** (32 * words), -(-row.position // 4)
    needed = []
    for j in range(row.first, row.first + len(row.values)):
        p, count, block = 4 * b + j * words, 0, b + j * words // 4
        r = scalar.block(row.lo, block % 2**32, block >> 32, row.hi % 2**32, row.hi >> 32)[
            p % 4 : p % 4 + words
        ]
        while sum(w << 32 * i for i, w in enumerate(r)) * span % top < top % span:
            t, part = divmod(count, 4 // words)
            count += 1
            second = p >> 32 | (0x80 + t) << 24
            r = scalar.block(row.lo, p % 2**32, second, row.hi % 2**32, row.hi >> 32)
            r = r[part * words : (part + 1) * words]
        needed.append(count)
    return needed


def test_draw_vectors_have_retries():
    counts = {}
    for row in draw_rows():
        if row.distribution == "randint":
            wide = row.parameters[1] >> 32 > 0
            counts.setdefault((row.dtype, wide), Counter()).update(candidates(row))
    for place in [("int32", False), ("int64", False), ("int64", True)]:
        count = counts[place]
        per_block = 2 if place[1] else 4
        assert count[0] and count[1] and count[2], place
        assert any(n > per_block for n in count), (place, "a second block of candidates")


@pytest.mark.parametrize(
    "line",
    [
        "drew bits uint32 0000000000000000 0000000000000000 0 0 1 6627e8d5",
        "draw bits uint16 0000000000000000 0000000000000000 0 0 1 e8d5",
        "draw bits uint32 0000000000000000 0000000000000000 0 0 2 6627e8d5",
        "real tan float32 00000000 00000000",
    ],
)
def test_draw_vectors_parser_refuses_what_it_does_not_know(line):
    with pytest.raises(ValueError):
        parse_draw(line)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", vectors.FUNCTIONS)
def test_draw_vectors_reference_functions(function, dtype):
    rows: list[Real] = [r for r in real_rows() if (r.function, r.dtype) == (function, dtype)]
    unsigned = np.uint32 if dtype == "float32" else np.uint64
    words = np.array([row.word for row in rows], unsigned)
    if function == "negative_log":
        made = fp_math.standard_exponential(words)
    else:
        pair = fp_math.cos_sin(words)
        made = pair[("cos", "sin").index(function)]
    assert made.dtype == dtype
    wrong = [
        r.text for r, v in zip(rows, made.view(unsigned).tolist(), strict=True) if v != r.result
    ]
    assert not wrong
