"""Exact sums depend on the values alone: order, cuts, threads and SIMD paths change no bit."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from helpers.simd import set_simd
from helpers.support import needs_native

from fastseed._backend import derive
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


def sums_of_all_kinds(dtype, count=9001):
    """Values of all magnitudes and kinds, of one size, few far apart, and with much between."""
    generator = torch.Generator().manual_seed(dtype.itemsize)
    normal = torch.randn(count, generator=generator).to(dtype)
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    span = torch.iinfo(integers)
    words = torch.randint(span.min, span.max, (count,), generator=generator, dtype=torch.int64)
    patterns = words.to(integers).view(dtype)
    finite = patterns[patterns.isfinite()]
    far = normal.clone()
    far[::1000] = torch.finfo(dtype).smallest_normal / 8
    far[7::1000] = torch.finfo(dtype).max
    steps = torch.ldexp(normal.double(), torch.arange(count) % 61 - 30).to(dtype)
    return {
        "normal": normal,
        "all patterns": patterns,
        "finite": finite,
        "far": far,
        "by steps": steps,
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("path", derive.simd_paths())
def test_every_path_gives_the_reference(path, dtype):
    set_simd(path)
    for name, values in sums_of_all_kinds(dtype).items():
        for factors in ([], [values], [values.flip(0).contiguous()]):
            assert torch.equal(total_of([values], factors), in_numpy([values], factors)), name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_sum_is_that_of_fractions(dtype):
    for values in sums_of_all_kinds(dtype, 700).values():
        exact = [Fraction(x) for x in values.double().tolist() if abs(x) < float("inf")]
        assert fraction_of(in_numpy([values])) == sum(exact)
        assert fraction_of(in_numpy([values], [values])) == sum(x * x for x in exact)


@pytest.mark.parametrize("squares", [False, True])
def test_order_cuts_and_threads_change_no_bit(squares):
    values = sums_of_all_kinds(torch.float32, 300_001)["by steps"]
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


@pytest.mark.parametrize("path", derive.simd_paths())
def test_memory_behind_the_values_is_not_read(path):
    set_simd(path)
    values = torch.full((5000,), float("nan"))
    for size in (0, 1, 63, 64, 65, 4095, 4096, 4097):
        values[1 : 1 + size] = 1.0
        total = total_of([values[1 : 1 + size]])
        assert fraction_of(total) == size and total[reference.NAN] == 0


def test_operator_meets_its_schema():
    values = [torch.randn(10), torch.randn(3, dtype=torch.float64)]
    for factors in ([], values):
        total = torch.zeros(exact_op.SIZE, dtype=torch.int64)
        torch.library.opcheck(torch.ops.fastseed.exact_sum, (total, values, factors))


WRONG = {
    "of dtype": lambda total, x: (total.int(), [x], []),
    "shape": lambda total, x: (total[:5], [x], []),
    "factors": lambda total, x: (total, [x], [x, x]),
    "values": lambda total, x: (total, [x.long()], []),
    "contiguous": lambda total, x: (total, [x[::2]], []),
    "sizes? of": lambda total, x: (total, [x], [x[:3]]),
    "share memory": lambda total, x: (total, [total.view(torch.float64)], []),
}


@needs_native
@pytest.mark.parametrize("rule", WRONG)
def test_wrong_arguments_are_refused(rule):
    total = torch.zeros(exact_op.SIZE, dtype=torch.int64)
    with pytest.raises((TypeError, ValueError, RuntimeError), match=rule):
        torch.ops.fastseed.exact_sum(*WRONG[rule](total, torch.ones(8)))
    assert not total.any()


@pytest.mark.parametrize("with_factors", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torchs_operations_give_the_sums_of_the_operator(monkeypatch, dtype, with_factors):
    monkeypatch.setattr(exact_op, "_CHUNK", 1000)
    for kind, values in sums_of_all_kinds(dtype).items():
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
