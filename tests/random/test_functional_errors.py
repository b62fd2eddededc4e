"""Draws from keys: what is refused, and in which words."""

import math

import numpy as np
import pytest
import torch

import fastseed
from fastseed._backend import native, tensors
from fastseed.random import fills, keyed
from fastseed.random.fills import _exp

KEYS = torch.zeros(3, 2, dtype=torch.uint64)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"key": True}, TypeError, "key must be an integer or a tensor of .*, got True"),
        ({"key": -1}, ValueError, rf"key must be in \[0, {2**128 - 1}\]"),
        ({"key": KEYS.T}, ValueError, r"key must be of shape \(\.\.\., 2\), got \(2, 3\)"),
        ({"shape": 1.5}, TypeError, "shape must be a tuple of integers, got 1.5 of type float"),
        ({"shape": (2, True)}, TypeError, r"shape\[1\] must be an integer, got True of type bool"),
        ({"shape": (2, -1)}, ValueError, r"shape\[1\] must be 0 or more, got -1"),
        ({"shape": (2**30, 2**30)}, ValueError, r"shape must be of at most 2\*\*56 words, got"),
        ({"dtype": torch.int32}, ValueError, "dtype must be one of torch.float16, .*, got torch.i"),
        ({"low": True}, TypeError, "low must be a number, got True of type bool"),
        ({"low": math.nan}, ValueError, "low must be finite in torch.float32, got nan"),
        ({"high": 1e39}, ValueError, "high must be finite in torch.float32, got 1e"),
        ({"high": 10**400}, ValueError, "high must be finite in torch.float32, got inf"),
        ({"high": 7e4, "dtype": torch.float16}, ValueError, "high must be finite in torch.float16"),
        ({"low": 1.0}, ValueError, r"high must be above low \(1.0\) in torch.float32, got 1.0"),
        ({"low": 1 - 1e-9}, ValueError, "high must be above low .* in torch.float32"),
        ({"low": -3e38, "high": 3e38}, ValueError, "high - low must be finite in torch.float32"),
    ],
)
def test_uniform_refuses(change, error, says):
    arguments = {"key": KEYS, "shape": 2, **change}
    with pytest.raises(error, match=r"^fastseed\.random\.uniform: " + says):
        fastseed.random.uniform(**arguments)


NARROW = {"a": 1.01, "b": 1.015, "dtype": torch.bfloat16}  # no number of bfloat16 is in between
UINT8 = {"dtype": torch.uint8}
ALL_32 = {"low": -(2**31), "high": 2**31, "dtype": torch.int32}
ALL_64 = {"low": -(2**63), "high": 2**63}


@pytest.mark.parametrize(
    ("name", "change", "error", "says"),
    [
        ("normal", {"std": -1}, ValueError, "std must be 0 or more, got -1.0"),
        ("trunc_normal", {"std": 0}, ValueError, "std must be above 0 in torch.float32, got 0.0"),
        ("trunc_normal", {"a": 2}, ValueError, r"b must be above a \(2.0\), with a number of"),
        ("trunc_normal", NARROW, ValueError, "b must be above a .*with a number of .* between"),
        ("trunc_normal", {"a": 9.2, "b": 10}, ValueError, r"\[a, b\] must be an interval that"),
        ("exponential", {"rate": 0}, ValueError, "rate must be above 0, .*, got 0.0"),
        ("exponential", {"rate": 1e-39}, ValueError, "above 0, with 1 / rate finite in torch.f"),
        ("exponential", {"rate": 5e-324}, ValueError, "rate must be above 0, with 1 / rate finite"),
        ("bernoulli", {"p": 1.1}, ValueError, r"p must be in \[0, 1\], got 1.1"),
        ("bernoulli", {"p": 0.5, "dtype": torch.int64}, ValueError, "dtype must be one of torch.b"),
        ("randint", {"low": 0.0}, TypeError, "low must be an integer, got 0.0 of type float"),
        ("randint", {"high": True}, TypeError, "high must be an integer, got True of type bool"),
        ("randint", {"high": 0}, ValueError, r"high must be in \(low, 9223372036854775808\]"),
        ("randint", {"low": 2**63}, ValueError, r"low must be in \[-9223372036854775808, "),
        ("randint", ALL_64, ValueError, rf"high - low must be below 2\*\*64 for .*, got {2**64}"),
        ("randint", ALL_32, ValueError, r"high - low must be below 2\*\*32 for .* \(or use bits\)"),
        ("randint", {"high": 257} | UINT8, ValueError, r"high must be in \(low, 256\]"),
        ("randint", {"dtype": torch.int16}, ValueError, "dtype must be one of torch.uint8"),
        ("bits", {"dtype": torch.int64}, ValueError, "dtype must be one of torch.uint32"),
    ],
)
def test_parameters_are_refused(name, change, error, says):
    needed = {"bernoulli": {"p": 0.5}, "randint": {"low": 0, "high": 9}}.get(name, {})
    with pytest.raises(error, match=rf"^fastseed\.random\.{name}: .*{says}"):
        getattr(fastseed.random, name)(KEYS, shape=2, **{**needed, **change})


def test_a_small_integer_is_a_key_like_any_other():
    assert fastseed.random.normal(3, 4).shape == (4,)
    assert torch.equal(fastseed.random.normal(3, 4), fastseed.random.normal(3, (4,)))


def test_a_parameter_without_a_shape_is_refused():
    with pytest.raises(ValueError, match="normal_: tensor must be initialized, got a parameter"):
        fastseed.random.normal_(torch.nn.parameter.UninitializedParameter(), 7)


def test_other_devices_are_refused(monkeypatch):
    cuda = torch.device("cuda:0")
    monkeypatch.setattr(native, "cuda_missing", "there is no nvcc")
    assert fastseed.build_info()["cuda"] == "not used: there is no nvcc"
    monkeypatch.setattr(native, "has_cuda", False)
    with pytest.raises(
        ValueError,
        match=r"^fastseed\.random\.rand: keys must be on the CPU, as .* not used .*, got cuda:0$",
    ):
        tensors.check_supported("random.rand", "keys", cuda)
    monkeypatch.setattr(native, "has_cuda", True)
    monkeypatch.setattr(native, "cuda_missing", None)
    assert fastseed.build_info()["cuda"] == "loaded"
    tensors.check_supported("random.rand", "keys", cuda)
    with pytest.raises(ValueError, match=r"keys must be on the CPU or a CUDA device, got xpu:1$"):
        tensors.check_supported("random.rand", "keys", torch.device("xpu:1"))


def test_the_distributions_of_composed_fills():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 0, 3)
    n = 1 << 16
    with keyed("flow"):
        geometric = torch.empty(n).geometric_(0.25)
        cauchy = torch.empty(n).cauchy_(1.0, 2.0)
        log_normal = torch.empty(n, dtype=torch.float64).log_normal_(0.5, 0.75)
        weights = torch.tensor([0.0, 1.0, 2.0, 5.0])
        chosen = torch.multinomial(weights, n, replacement=True)
        alone = torch.multinomial(weights.expand(n, 4), 1).flatten()
        floats = torch.empty(n, dtype=torch.float16).random_()
    assert abs(geometric.mean() - 4) < 0.1 and geometric.min() == 1
    assert torch.allclose(
        cauchy.quantile(torch.tensor([0.25, 0.5, 0.75])), torch.tensor([-1.0, 1.0, 3.0]), atol=0.1
    )
    assert abs(log_normal.log().mean() - 0.5) < 0.02 and abs(log_normal.log().std() - 0.75) < 0.02
    for found in (chosen, alone):
        share = found.bincount(minlength=4) / n
        assert torch.allclose(share, weights / 8, atol=0.01) and share[0] == 0
    assert floats.min() >= 0 and floats.max() <= 2048 and torch.equal(floats, floats.round())


def test_the_exponential_function_of_log_normal():
    x = torch.cat([torch.linspace(-745, 709.7, 4001, dtype=torch.float64), torch.zeros(1)])
    error = ((_exp(x) - x.exp()) / x.exp().clamp_min(5e-324)).abs()
    assert error[x > -708].max() < 5e-16 and torch.isfinite(_exp(x)).all()
    assert _exp(torch.tensor([710.0, -800.0], dtype=torch.float64)).tolist() == [float("inf"), 0.0]


@pytest.mark.parametrize(
    ("dtype", "digits", "least"), [(torch.float16, 11, -24), (torch.bfloat16, 8, -133)]
)
def test_results_of_16_bits_are_rounded_once(dtype, digits, least):
    def near(middle: float) -> list[float]:
        tiny = middle * 2.0**-50
        return [middle - tiny, middle, middle + tiny, -middle - tiny, tiny - middle]

    unit = 2.0 ** (1 - digits)
    values = torch.tensor(
        [*near(1 + unit / 2), *near(2.0 ** (least - 1)), 1e300, -1e300, 0, math.nan],
        dtype=torch.float64,
    )
    found = torch.empty(values.shape, dtype=dtype)
    fills.write(found, values)
    above, low = 1 + unit, 2.0**least
    expected = [1, 1, above, -above, -1, 0, 0, low, -low, 0, math.inf, -math.inf, 0, math.nan]
    np.testing.assert_equal(found.double().numpy(), np.array(expected))
