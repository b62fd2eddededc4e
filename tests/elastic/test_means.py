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
    values = [1e16, 1.0, -1e16, 3.0]
    for order in ([0, 1, 2, 3], [1, 0, 3, 2], [2, 0, 1, 3]):
        assert elastic.mean([values[i] for i in order]).item() == 1.0
    assert torch.tensor(values, dtype=torch.float64).mean().item() != 1.0  # the negative control


def test_what_values_and_weights_may_be():
    losses = [torch.tensor(1.0, requires_grad=True), torch.tensor([2.0])]
    assert torch.equal(elastic.mean(losses), torch.tensor(1.5))
    assert torch.equal(elastic.mean(losses, weights=[3, 1]), torch.tensor(1.25))
    assert torch.equal(elastic.mean(iter([1, 2])), torch.tensor(1.5, dtype=torch.float64))
    assert torch.equal(elastic.mean(torch.arange(4)), torch.tensor(1.5, dtype=torch.float64))
    assert torch.equal(elastic.mean(torch.ones(2, 3).half()), torch.tensor(1.0))
    mixed = [torch.tensor(1.0, dtype=dtype) for dtype in (torch.bfloat16, torch.float16)]
    for values in (mixed, [mixed[0], torch.tensor(1.0)]):
        assert torch.equal(elastic.mean(values), torch.tensor(1.0))
    counts = torch.tensor([[1, 0]], dtype=torch.uint8)
    assert elastic.mean(torch.tensor([[5.0, 1.0]]), weights=counts).item() == 5
    assert elastic.mean([np.float32(0.5), 1.5]).item() == 1.0
    for most in (2**53, torch.tensor(-(2**53))):
        assert elastic.mean([most]).item() == float(most)


def test_special_values():
    inf, nan = math.inf, math.nan
    assert elastic.mean([1.0, inf]).item() == inf and elastic.mean([-inf]).item() == -inf
    for values in ([inf, -inf], [1.0, nan], []):
        assert math.isnan(elastic.mean(values).item())
    assert math.isnan(elastic.mean([1.0, inf], weights=[1, 0]).item())  # inf * 0, as in IEEE 754
    zero = elastic.mean([-0.0, -0.0]).item()
    assert zero == 0 and math.copysign(1, zero) == 1
    assert elastic.mean([1.7e308, 1.7e308]).item() == 1.7e308  # a sum beyond the largest number
    assert elastic.mean([5e-324, 5e-324]).item() == 5e-324


@pytest.mark.parametrize(
    ("arguments", "weights", "error", "text"),
    [
        (3.0, None, TypeError, "values must be a tensor, or tensors and numbers"),
        (["1"], None, TypeError, "values[0] must be a number or a tensor"),
        ([True], None, TypeError, "values[0] must be a number or a tensor"),
        ([torch.ones(2)], None, ValueError, "values[0] must be of one element"),
        (torch.ones(2).to(torch.complex64), None, TypeError, "values must be of dtype"),
        ([2**53 + 1], None, ValueError, "values[0] must be at most 2**53"),
        (torch.tensor([-(2**53) - 2]), None, ValueError, "values must be at most 2**53"),
        ([1.0, 2.0], [1.0], ValueError, "weights must be as many as values, 2"),
        ([1.0], [-1.0], ValueError, "weights must be finite and at least 0"),
        ([1.0], [math.nan], ValueError, "weights must be finite and at least 0"),
        ([1.0], [0.0], ValueError, "weights must be of a sum above 0"),
    ],
)
def test_wrong_arguments(arguments, weights, error, text):
    with pytest.raises(error) as raised:
        elastic.mean(arguments, weights=weights)
    assert str(raised.value).startswith(f"fastseed.elastic.mean: {text}")
