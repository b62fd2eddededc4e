"""Every backend gives the known answers of ``data/draws.txt``, and these never change."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from helpers import vectors
from helpers.simd import set_simd
from helpers.vectors import Draw, Real, draw_rows, parse_draw, read_draws, real_rows

from fastseed._backend import derive
from fastseed._backend.ops.register import REFERENCES
from fastseed._backend.reference import draws as reference
from fastseed._backend.reference import fp_math, scalar

FIRST_RELEASE = (954, "5d15fe3e66b917a88b0cf72de0620d52b986f47a62e8b7abf5d23c57e2499b7d")
SIMD = ("portable", "avx2", "avx512")
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


def texts() -> list[str]:
    return [row.text for row in read_draws()]


# ---------------------------------------------------------------- the file


def test_draw_vectors_are_frozen():
    releases = vectors.frozen("draws")
    assert releases[0] == FIRST_RELEASE
    assert vectors.changed(texts(), releases) == []
    assert releases[-1][0] == len(texts()), "appended rows belong into draws.sha256 as well"


def test_draw_vectors_cover_what_they_should():
    rows = draw_rows()
    assert len(set(texts())) == len(texts())
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


# ---------------------------------------------------------------- the reference


def reals(patterns: tuple[int, ...], dtype: str) -> list[float]:
    """Parameters, from their patterns in the type of the computation."""
    kinds = (np.uint64, np.float64) if dtype == "float64" else (np.uint32, np.float32)
    return np.array(patterns, kinds[0]).view(kinds[1]).tolist()


def parameters(row: Draw) -> list:
    is_real = "r" in vectors.PARAMETERS[row.distribution]
    return reals(row.parameters, row.dtype) if is_real else list(row.parameters)


def by_reference(row: Draw) -> list[int]:
    """The patterns of a row's values, from the NumPy reference."""
    keys = np.array([[row.lo, row.hi]], np.uint64)
    at = (keys, np.array([row.position], np.int64), row.first, len(row.values))
    given = parameters(row)
    if row.distribution == "bits":
        values = reference.bits(*at, words=vectors.WIDTHS[row.dtype] // 32)
    elif row.distribution == "bernoulli":
        values = reference.bernoulli(*at, *given)
    elif row.distribution == "randint":
        values = reference.randint(*at, *given)
    else:
        values = getattr(reference, row.distribution)(*at, row.dtype, *given)
    return torch_patterns(torch.from_numpy(values).reshape(-1), row.dtype)


def torch_patterns(values: torch.Tensor, dtype: str) -> list[int]:
    """Bit patterns of a tensor, cast to dtype (which is exact where the values are right)."""
    unsigned = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
    width = vectors.WIDTHS[dtype]
    cast = values.to(getattr(torch, dtype)).contiguous()
    return [v % 2**width for v in cast.view(unsigned[width]).tolist()]


def test_draw_vectors_reference():
    for row in draw_rows():
        assert by_reference(row) == list(row.values), row.text[:200]


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


# ---------------------------------------------------------------- the operators


@pytest.fixture(params=[*SIMD, "NumPy"])
def operator(request):
    """``draw_bits`` and the others by name: on one instruction set, and what stands in for them."""
    if request.param == "NumPy":
        return lambda name: REFERENCES[name]
    if request.param not in derive.simd_paths():
        pytest.skip(
            f"no native kernels for {request.param} here (there are: {derive.simd_paths()})"
        )
    set_simd(request.param)
    assert derive.simd() == request.param
    return lambda name: getattr(torch.ops.fastseed, name)


def signed(value: int) -> int:
    """As operators take 64 bits."""
    return value - 2**64 if value >= 2**63 else value


def by_operator(
    operator, row: Draw, sizes: list[int], strides: list[int], rows: int, device="cpu"
) -> list:
    """Patterns, (rows, values): the row's stream is the last, those before it have other keys."""
    count = int(np.prod(sizes)) if sizes else len(row.values)
    keys = torch.tensor([[row.lo ^ i, row.hi] for i in range(rows - 1, -1, -1)], dtype=torch.uint64)
    positions = torch.full((rows,), 4)
    positions[-1] = row.position
    out = torch.zeros(rows, count, dtype=getattr(torch, row.dtype))
    given = parameters(row)
    if "d" in vectors.PARAMETERS[row.distribution]:
        given = [signed(value) for value in given]
    out, keys, positions = (tensor.to(device) for tensor in (out, keys, positions))
    operator(f"draw_{row.distribution}")(out, keys, positions, sizes, strides, row.first, *given)
    return [torch_patterns(values, row.dtype) for values in out.cpu()]


def test_draw_vectors_operators(operator):
    for row in draw_rows():
        assert by_operator(operator, row, [], [], 1) == [list(row.values)], row.text[:200]


def test_draw_vectors_operators_one_of_several_streams(operator):
    for row in draw_rows():
        made = by_operator(operator, row, [len(row.values)], [1], 3)
        assert made[-1] == list(row.values), row.text[:200]
        if len(row.values) > 100 and row.distribution != "bernoulli":
            assert made[0] != made[1] != made[2] or len(set(row.values)) == 1, row.text[:200]


def test_draw_vectors_operators_parts(operator):
    """Windows of a draw, one value apart: the ends of each have all remainders."""
    for row in draw_rows():
        values = list(row.values)
        if len(values) > 4:
            width = len(values) - 4
            made = by_operator(operator, row, [5, width], [1, 1], 1)
            assert made[0] == [v for i in range(5) for v in values[i : i + width]], row.text[:200]


@pytest.mark.cuda
def test_draw_vectors_cuda(device):
    def operator(name: str):
        return getattr(torch.ops.fastseed, name)

    for row in draw_rows():
        values, count = list(row.values), len(row.values)
        assert by_operator(operator, row, [], [], 1, device) == [values], row.text[:200]
        assert by_operator(operator, row, [count], [1], 3, device)[-1] == values, row.text[:200]
        width = max(1, count - 4)
        windows = [v for i in range(count - width + 1) for v in values[i : i + width]]
        made = by_operator(operator, row, [count - width + 1, width], [1, 1], 1, device)
        assert made[0] == windows, row.text[:200]
