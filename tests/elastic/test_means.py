"""The exact mean of losses and metrics in one process; ``test_clipping`` has those of ranks."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from fastseed import elastic


def test_the_mean_is_the_nearest_number():
    generator = torch.Generator().manual_seed(1)
    for n in (1, 2, 3, 10, 999):
        values = torch.randn(n, dtype=torch.float64, generator=generator)
        weights = torch.rand(n, dtype=torch.float64, generator=generator)
        exact = [Fraction(x) for x in values.tolist()]
        shares = [Fraction(x) for x in weights.tolist()]
        assert elastic.mean(values).item() == float(sum(exact) / n)
        weighted = sum(x * w for x, w in zip(exact, shares, strict=True)) / sum(shares)
        assert elastic.mean(values, weights=weights).item() == float(weighted)
        small = values.float()
        mean = sum(Fraction(x) for x in small.tolist()) / n
        found = elastic.mean(small).item()
        for other in np.nextafter(np.float32(found), np.float32([-np.inf, np.inf])):
            assert abs(Fraction(found) - mean) <= abs(Fraction(float(other)) - mean)


def test_neither_order_nor_cancellation_loses_a_bit():
    values = torch.tensor([1e16, 1.0, -1e16, 3.0], dtype=torch.float64)
    for order in ([0, 1, 2, 3], [1, 0, 3, 2], [2, 0, 1, 3]):
        assert elastic.mean(values[order]).item() == 1.0
    assert values.mean().item() != 1.0  # the negative control


def test_what_values_and_weights_may_be():
    losses = [torch.tensor(1.0, requires_grad=True), torch.tensor([2.0])]
    assert torch.equal(elastic.mean(losses), torch.tensor(1.5))
    assert torch.equal(elastic.mean(losses, weights=torch.tensor([3.0, 1.0])), torch.tensor(1.25))
    assert torch.equal(elastic.mean(torch.ones(2, 3).half()), torch.tensor(1.0))
    mixed = [torch.tensor(1.0, dtype=dtype) for dtype in (torch.bfloat16, torch.float16)]
    for values in (iter(mixed), [mixed[0], torch.tensor(1.0)]):
        assert torch.equal(elastic.mean(values), torch.tensor(1.0))
    counts = torch.tensor([[1, 0]], dtype=torch.half)
    assert elastic.mean(torch.tensor([[5.0, 1.0]]), weights=counts).item() == 5


def test_special_values():
    inf, nan = math.inf, math.nan

    def mean(*values, **more):
        return elastic.mean(torch.tensor(values, dtype=torch.float64), **more).item()

    assert mean(1.0, inf) == inf and mean(-inf) == -inf
    assert math.isnan(mean(inf, -inf)) and math.isnan(mean(1.0, nan)) and math.isnan(mean())
    assert math.isnan(elastic.mean([]).item())
    assert math.isnan(mean(1.0, inf, weights=torch.tensor([1.0, 0.0])))  # as in IEEE 754
    zero = mean(-0.0, -0.0)
    assert zero == 0 and math.copysign(1, zero) == 1
    assert mean(1.7e308, 1.7e308) == 1.7e308  # a sum beyond the largest number
    assert mean(5e-324, 5e-324) == 5e-324


ONE, TWO = torch.ones(1), torch.ones(2)


@pytest.mark.parametrize(
    ("arguments", "weights", "error", "text"),
    [
        (3.0, None, TypeError, "values must be a tensor, or tensors of one element"),
        ([0.5], None, TypeError, "values[0] must be a tensor, got 0.5"),
        ([ONE, TWO], None, ValueError, "values must be a tensor, or tensors of one element"),
        (TWO.to(torch.complex64), None, TypeError, "values must be of dtype"),
        (torch.arange(3), None, TypeError, "values must be of dtype"),
        ([ONE, ONE.to("meta")], None, ValueError, "values[1] must have data"),
        (TWO, ONE, ValueError, "weights must be as many as values, 2"),
        (ONE, ONE.long(), TypeError, "weights must be of dtype"),
        (ONE, -ONE, ValueError, "weights must be finite and at least 0"),
        (ONE, ONE * math.nan, ValueError, "weights must be finite and at least 0"),
        (ONE, ONE * 0, ValueError, "weights must be of a sum above 0"),
    ],
)
def test_wrong_arguments(arguments, weights, error, text):
    with pytest.raises(error) as raised:
        elastic.mean(arguments, weights=weights)
    assert str(raised.value).startswith(f"fastseed.elastic.mean: {text}")
