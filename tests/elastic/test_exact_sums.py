"""Exact sums depend on the values alone: order, cuts and threads change no bit."""

import functools
import struct
from fractions import Fraction

import pytest
import torch
from helpers import vectors
from helpers.operators import summands

from fastseed._backend.ops import exact as exact_op
from fastseed._backend.ops.draws import REALS
from fastseed._backend.ops.register import REFERENCES
from fastseed._backend.reference import exact_sum as reference
from fastseed.elastic import sums

DTYPES = REALS


def total_of(values, factors=(), total=None):
    total = torch.zeros(exact_op.SIZE, dtype=torch.int64) if total is None else total
    torch.ops.fastseed.exact_sum(total, list(values), list(factors))
    return total


def in_numpy(values, factors=()):
    total = torch.zeros(exact_op.SIZE, dtype=torch.int64)
    REFERENCES["exact_sum"](total, list(values), list(factors))
    return total


def fraction_of(total) -> Fraction:
    return Fraction(reference.to_integer(total.numpy()), 2**reference.FRACTION_BITS)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_sum_is_that_of_fractions(dtype):
    for values in summands(dtype, 700).values():
        exact = [Fraction(x) for x in values.double().tolist() if abs(x) < float("inf")]
        assert fraction_of(in_numpy([values])) == sum(exact)
        assert fraction_of(in_numpy([values], [values])) == sum(x * x for x in exact)


@pytest.mark.parametrize("squares", [False, True])
def test_order_cuts_and_threads_change_no_bit(squares):
    values = summands(torch.float32, 300_001)["by steps"]
    expected = total_of([values], [values] if squares else [])
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            shuffled = values[torch.randperm(len(values), generator=torch.Generator())]
            parts = list(shuffled.split([1, 63, 64, 4097, 100_000, 195_776]))
            assert torch.equal(total_of(parts, parts if squares else []), expected)
    finally:
        torch.set_num_threads(threads)
    # and accumulators of parts, added as integers
    totals = [total_of([part], [part] if squares else []) for part in values.chunk(7)]
    assert torch.equal(total_of([], [], torch.stack(totals).sum(0)), expected)


def test_mixed_dtypes_share_an_accumulator():
    parts = [torch.tensor([1.5], dtype=dtype) for dtype in DTYPES]
    assert fraction_of(total_of(parts)) == 6
    assert fraction_of(total_of(parts, parts)) == 9


def test_limbs_of_many_ranks_are_carried():
    """Accumulators of 2**30 ranks are added as integers, in limbs of 64 bits."""
    values = torch.full((1000,), -torch.finfo(torch.float64).max, dtype=torch.float64)
    total = total_of([values], [values])
    many = total.clone()
    many[: reference.LIMBS] *= 2**30
    assert fraction_of(many) == fraction_of(total) * 2**30
    assert fraction_of(total_of([values], [values], many)) == fraction_of(total) * (2**30 + 1)


def test_nothing_and_zeros():
    empty = torch.zeros(0)
    assert not total_of([]).any() and not total_of([empty]).any()
    zeros = total_of([torch.tensor([0.0, -0.0])])
    assert zeros.tolist() == [0] * reference.COUNT + [2]


DTYPES_OF = {"float32": torch.float32, "float64": torch.float64}
rows = functools.partial(vectors.fields_of, "exact_sum")


def bits_of(dtype: str, value: float) -> str:
    return struct.pack({"float32": ">f", "float64": ">d"}[dtype], value).hex()


def test_means():
    for dtype, digits, exponent, weight, weight_exponent, expected in rows("mean"):
        power = int(exponent) - int(weight_exponent)
        found = sums.nearest(int(digits, 16), int(weight, 16), power, DTYPES_OF[dtype])
        assert bits_of(dtype, found) == expected


def test_roots():
    for dtype, digits, exponent, expected in rows("root"):
        odd = int(exponent) % 2
        number = int(digits, 16) << odd
        found = sums.square_root(number, int(exponent) - odd, DTYPES_OF[dtype])
        assert bits_of(dtype, found) == expected


@pytest.mark.parametrize("with_factors", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torchs_operations_give_the_sums_of_the_operator(monkeypatch, dtype, with_factors):
    monkeypatch.setattr(exact_op, "_CHUNK", 1000)
    for kind, values in summands(dtype, 3001).items():
        factors = [values.flip(0)] if with_factors else []
        total = torch.zeros(exact_op.SIZE, dtype=torch.int64)
        exact_op.in_torch(total, [values], factors)
        expected = total_of([values], factors)
        assert fraction_of(total) == fraction_of(expected), kind
        assert torch.equal(total[reference.LIMBS :], expected[reference.LIMBS :])
        limbs = total[: reference.LIMBS - 1]
        assert limbs.min() >= -1 and limbs.max() <= 2**32


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_device_without_the_operator_copies_nothing_to_the_host(monkeypatch, dtype):
    """A copy of a meta tensor raises."""
    monkeypatch.setattr(exact_op, "exact_sum", None)
    tensors = [torch.ones(3, 4, dtype=dtype, device="meta").t(), torch.ones(0, device="meta")]
    for factors in ([], tensors):
        assert sums.accumulate(tensors, factors).device.type == "meta"
