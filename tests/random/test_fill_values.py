"""What fills compute from draws: distributions, their exponential function, 16-bit results."""

import math

import numpy as np
import pytest
import torch

import fastseed
from fastseed.random import fills, keyed
from fastseed.random.fills import _exp


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
