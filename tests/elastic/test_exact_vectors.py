"""Known answers of exact sums, on the NumPy reference and every SIMD path."""

from __future__ import annotations

import functools
import struct

import pytest
import torch
from helpers import vectors
from helpers.simd import set_simd

from fastseed._backend import derive
from fastseed._backend.ops import exact as exact_op
from fastseed._backend.ops.register import REFERENCES
from fastseed._backend.reference import exact_sum as reference
from fastseed.elastic import sums

KINDS = {"sum": 150, "mean": 200, "root": 250}
DTYPES = {
    "float16": (torch.float16, torch.int16),
    "bfloat16": (torch.bfloat16, torch.int16),
    "float32": (torch.float32, torch.int32),
    "float64": (torch.float64, torch.int64),
}
PATTERNS = {"float32": "<f", "float64": "<d"}
rows = functools.partial(vectors.fields_of, "exact_sum")


@pytest.fixture(params=("reference", "torch", *derive.simd_paths()))
def exact_sum(request):
    """The operator of a backend, or what stands in for it on a device without it."""
    if request.param == "reference":
        return REFERENCES["exact_sum"]
    if request.param == "torch":
        return exact_op.in_torch
    set_simd(request.param)
    return torch.ops.fastseed.exact_sum.default


def tensor_of(dtype: str, patterns: str) -> torch.Tensor:
    real, integers = DTYPES[dtype]
    width = 8 * real.itemsize
    words = [int(text, 16) for text in patterns.split(",")] if patterns != "-" else []
    signed = [word - (word >> (width - 1) << width) for word in words]
    return torch.tensor(signed, dtype=integers).view(real)


def bits_of(dtype: str, value: float) -> str:
    return struct.pack(PATTERNS[dtype], value)[::-1].hex()


def test_vectors_are_frozen():
    vectors.check_file("exact_sum", KINDS)


def test_sums(exact_sum):
    for dtype, patterns, others, digits, exponent, *kinds in rows("sum"):
        values = tensor_of(dtype, patterns)
        factors = {"-": [], "=": [values]}.get(others) or (
            [] if others == "-" else [tensor_of(dtype, others)]
        )
        total = torch.zeros(exact_op.SIZE, dtype=torch.int64)
        exact_sum(total, [values], factors)
        number = reference.to_integer(total.numpy())
        at = int(exponent) + reference.FRACTION_BITS
        assert number == int(digits, 16) << at, (dtype, patterns, others)
        assert total[reference.LIMBS :].tolist() == [*map(int, kinds), values.numel()]
        if exact_sum is not exact_op.in_torch:  # carried, so that equal numbers have equal limbs
            assert total[: reference.LIMBS - 1].min() >= 0
            assert total[: reference.LIMBS - 1].max() < 2**32


def test_means():
    for dtype, digits, exponent, weight, weight_exponent, expected in rows("mean"):
        power = int(exponent) - int(weight_exponent)
        found = sums.nearest(int(digits, 16), int(weight, 16), power, DTYPES[dtype][0])
        assert bits_of(dtype, found) == expected


def test_roots():
    for dtype, digits, exponent, expected in rows("root"):
        odd = int(exponent) % 2
        number = int(digits, 16) << odd
        found = sums.square_root(number, int(exponent) - odd, DTYPES[dtype][0])
        assert bits_of(dtype, found) == expected
