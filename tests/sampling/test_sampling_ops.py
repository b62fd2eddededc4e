"""The operators of sampling as torch sees them, and sampling in compiled code: the eager bits."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from helpers.simd import set_simd
from helpers.support import needs_native, run_script

from fastseed._backend import derive
from fastseed._backend.ops.register import REFERENCES
from fastseed._backend.ops.sampling import BINS, LEAST_CODE

OPS = ("sampling_race", "sampling_histogram")
NUMBERS = (torch.float32, torch.bfloat16, torch.float16)
SIMD = derive.simd_paths()
SOME_CODE = LEAST_CODE + (0xC0300000 - 0x00800000 << 28)  # of the logit 2.75 and the last token


def overload(op):
    return getattr(torch.ops.fastseed, op).default


def row_inputs(n, size, dtype=torch.float32, scale=3.0, seed=0):
    """Numbers, keys, positions."""
    generator = torch.Generator().manual_seed(seed)
    numbers = (torch.randn(n, size, generator=generator) * scale).to(dtype)
    words = torch.randint(-(2**63), 2**63 - 1, (n, 2), generator=generator)
    return numbers, words.view(torch.uint64), torch.randint(0, 2**56, (n,), generator=generator)


def race_inputs(n, size, parts=2, temperature=0.7, first=0, **more):
    numbers, keys, positions = row_inputs(n, size, **more)
    scores = torch.zeros(n, parts, dtype=torch.float64)
    heat = torch.full((n,), temperature, dtype=torch.float64)
    least = torch.full((n,), LEAST_CODE)
    least[1::3] = SOME_CODE
    tokens = torch.zeros(n, parts, dtype=torch.int64)
    return (scores, tokens, numbers, keys, positions, heat, least, first)


def histogram_inputs(n, size, digit=4, masses=True, dtype=torch.float32):
    numbers, _, _ = row_inputs(n, size, dtype)
    greatest = numbers.float().amax(1) if masses else None
    heat = torch.full((n,), 0.7, dtype=torch.float64)
    prefix = torch.full((n,), {4: 0, 3: 0xC00, 2: 0xC00 << 12 | 5}[digit])
    out = torch.zeros(n, BINS, dtype=torch.int64)
    return (out, numbers, torch.full((n,), LEAST_CODE), prefix, greatest, heat, digit, 3)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_opcheck(n):
    cases = [race_inputs(n, 9), histogram_inputs(n, 9), histogram_inputs(n, 9, masses=False)]
    for op, inputs in zip((OPS[0], OPS[1], OPS[1]), cases, strict=True):
        assert set(torch.library.opcheck(overload(op), inputs).values()) == {"SUCCESS"}


def written(op, function, inputs):
    inputs = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    function(*inputs)
    return [value.nan_to_num(-7.0) for value in inputs[: 2 if op == "sampling_race" else 1]]


def assert_equal_backends(op, inputs):
    expected = written(op, REFERENCES[op], inputs)
    for path in SIMD:
        set_simd(path)
        for found, answer in zip(written(op, overload(op), inputs), expected, strict=True):
            assert torch.equal(found, answer), path


SIZES = (1, 2, 63, 64, 65, 200, 2047, 2049, 5000)


@needs_native
@pytest.mark.parametrize("dtype", NUMBERS)
def test_native_races_equal_the_fallback(dtype):
    choices = itertools.product(SIZES, (1, 3), (0.0, 0.7, 2.0**-20, 2.0**20), (1.0, 10.0))
    for seed, (size, parts, temperature, scale) in enumerate(choices):
        inputs = race_inputs(
            4, size, parts, temperature, (0, 1, 2**24 - 5000)[seed % 3],
            dtype=dtype, scale=scale, seed=seed,
        )  # fmt: skip
        if seed % 5 == 0:
            inputs[2][0, size // 2] = math.nan
            inputs[2][1, size // 2] = math.inf
            inputs[2][2] = -math.inf
        assert_equal_backends("sampling_race", inputs)


@needs_native
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30, 3e37])
def test_native_races_equal_the_fallback_at_the_ends(scale):
    for temperature in (2.0**-20, 1.0, 2.0**20):
        inputs = race_inputs(3, 3000, 1, temperature, scale=scale)
        assert_equal_backends("sampling_race", inputs)
    rising = torch.arange(6000.0).expand(3, -1)
    for step in (1e-4, 0.1, 1.0):
        inputs = list(race_inputs(3, 6000, 1, 1.0))
        inputs[2] = rising * step
        assert_equal_backends("sampling_race", inputs)


@needs_native
@pytest.mark.parametrize("dtype", NUMBERS)
def test_native_histograms_equal_the_fallback(dtype):
    for size, digit, masses in itertools.product(SIZES, (4, 3, 2), (True, False)):
        inputs = histogram_inputs(3, size, digit, masses, dtype)
        if size > 2:
            inputs[1][0, 1], inputs[1][1, 1], inputs[1][2, 1] = math.nan, math.inf, -math.inf
        assert_equal_backends("sampling_histogram", inputs)


@needs_native
def test_rows_may_lie_apart():
    inputs = list(race_inputs(3, 50))
    apart = torch.zeros(3, 99)
    apart[:, :50] = inputs[2]
    expected = written("sampling_race", overload("sampling_race"), inputs)
    inputs[2] = apart[:, :50]
    overload("sampling_race")(*inputs)
    assert torch.equal(inputs[0], expected[0]) and torch.equal(inputs[1], expected[1])


REFUSED = (
    ("numbers must be of dtype float32", 2, lambda t: t.double()),
    ("numbers of a row must be consecutive", 2, lambda t: t.t().contiguous().t()),
    ("numbers must be of shape", 2, lambda t: t[0]),
    ("keys must be of shape", 3, lambda t: t[:1]),
    ("positions must be of shape", 4, lambda t: t[:1]),
    ("positions must be contiguous", 4, lambda t: t.repeat_interleave(2)[::2]),
    ("temperature must be of dtype torch.float64", 5, lambda t: t.float()),
    ("threshold must be of shape", 6, lambda t: t[:0]),
    ("tokens must be below", 7, lambda first: 2**24),
    ("tokens must be below", 7, lambda first: -1),
    ("scores must be of shape", 0, lambda t: t[:, :0]),
    ("tokens must be of shape", 1, lambda t: t[:1]),
    ("memory for all", 2, lambda t: t.untyped_storage().resize_(8) and t),
)


@needs_native
@pytest.mark.parametrize(("text", "index", "change"), REFUSED)
def test_native_operators_refuse_other_tensors(text, index, change):
    inputs = list(race_inputs(3, 9))
    inputs[index] = change(inputs[index])
    with pytest.raises(RuntimeError, match=text):
        overload("sampling_race")(*inputs)


def test_fakes_know_no_data():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        assert overload("sampling_race")(*race_inputs(3, 9)) is None
        assert overload("sampling_histogram")(*histogram_inputs(3, 9)) is None


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_sampling_has_the_eager_bits(backend):
    found = run_script("compiled_sampling.py", backend, timeout=280)
    assert found["wrong"] == []
    assert found["compared"] == {"aot_eager": 21, "inductor": 7}[backend]
