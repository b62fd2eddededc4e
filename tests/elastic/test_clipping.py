"""Clipping by the exact norm: torch's rules, the same bits on any layout."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from fastseed import elastic


def with_gradients(*gradients):
    parameters = [nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    return parameters


def is_nearest_root(found: float, square: Fraction, eps: float) -> bool:
    """Return whether no number of the dtype is nearer to the root than ``found``."""
    half = (
        Fraction(math.ulp(1.0) if eps < 1e-10 else eps)
        / 2
        * Fraction(2) ** (math.frexp(found)[1] - 1)
    )
    return (Fraction(found) - half) ** 2 <= square <= (Fraction(found) + half) ** 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_norm_is_the_nearest_number(dtype):
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        tensors = [torch.randn(n, generator=generator).to(dtype) for n in (1, 7, 1000)]
        norm = elastic.get_total_norm(tensors)
        assert norm.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        square = sum(Fraction(x) ** 2 for t in tensors for x in t.double().tolist())
        assert is_nearest_root(norm.item(), square, torch.finfo(norm.dtype).eps)
        assert torch.allclose(
            norm,
            torch.linalg.vector_norm(torch.cat(tensors).double()).float().to(norm.dtype),
            rtol=1e-6,
        )


def test_gradients_are_scaled_as_by_torch():
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(5, 3, generator=generator), torch.randn(7, generator=generator)]
    for max_norm in (0.0, 1e-3, 1.0, 100.0, math.inf):
        ours, theirs = with_gradients(*gradients), with_gradients(*gradients)
        norm = elastic.clip_grad_norm_(ours, max_norm)
        expected = nn.utils.clip_grad_norm_(theirs, max_norm)
        assert torch.allclose(norm, expected) and norm.dtype == expected.dtype
        for a, b in zip(ours, theirs, strict=True):
            assert torch.allclose(a.grad, b.grad, rtol=1e-6)
        if max_norm >= 100:
            assert all(torch.equal(p.grad, g) for p, g in zip(ours, gradients, strict=True))


def test_gradients_of_all_kinds():
    strided = torch.arange(12.0).reshape(3, 4).T
    parameters = with_gradients(strided, torch.ones(3, dtype=torch.float64))
    parameters += [
        nn.Parameter(torch.zeros(3)),
        *with_gradients(torch.ones(2, dtype=torch.bfloat16)),
    ]
    norm = elastic.clip_grad_norm_(iter(parameters), 1.0)
    assert norm.dtype == torch.float64 and norm.item() == math.sqrt(506 + 3 + 2)
    assert torch.allclose(parameters[0].grad, strided / norm.float())
    assert parameters[2].grad is None
    assert elastic.clip_grad_norm_([], 1.0).item() == 0
    assert elastic.clip_grad_norm_(parameters[2], 1.0).item() == 0  # one without a gradient


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_16_bits_are_multiplied_in_float32(dtype):
    gradient = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    (parameter,) = with_gradients(gradient)
    norm = elastic.clip_grad_norm_([parameter], 9.599)
    scale = torch.tensor(9.599 / (norm.item() + 1e-6))
    assert torch.equal(parameter.grad, (gradient.float() * scale).to(dtype))
    large = with_gradients(torch.full((300_000,), 65504.0, dtype=torch.float16))
    elastic.clip_grad_norm_(large, 1.0)
    assert large[0].grad.count_nonzero() == 300_000


@pytest.mark.parametrize("gradient", [[3e38, 3e38], [1.0, math.inf], [1.0, math.nan]])
def test_infinity_changes_no_gradient(gradient):
    (parameter,) = with_gradients(torch.tensor(gradient))
    assert not math.isfinite(elastic.clip_grad_norm_([parameter], math.inf))
    assert torch.equal(parameter.grad.nan_to_num(7), torch.tensor(gradient).nan_to_num(7))


@pytest.mark.parametrize(
    ("value", "norm"), [(math.inf, math.inf), (-math.inf, math.inf), (math.nan, math.nan)]
)
def test_norms_that_are_not_finite(value, norm):
    gradient = torch.tensor([1.0, value])
    (parameter,) = with_gradients(gradient)
    with pytest.raises(RuntimeError, match="clip_grad_norm_: the norm must be finite, got"):
        elastic.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)
    assert torch.equal(parameter.grad, gradient) or math.isnan(value)
    (other,) = with_gradients(gradient)
    found = elastic.clip_grad_norm_([parameter], 1.0)
    assert torch.equal(found, torch.tensor(norm)) or math.isnan(norm)
    nn.utils.clip_grad_norm_([other], 1.0)
    assert torch.equal(parameter.grad.nan_to_num(7), other.grad.nan_to_num(7))


def test_norms_beyond_the_largest_number_are_infinite():
    largest = torch.finfo(torch.float32).max
    assert elastic.get_total_norm(torch.tensor([largest, 1.0])).item() == largest
    assert elastic.get_total_norm(torch.tensor([largest, largest])).item() == math.inf
    least = torch.tensor([2.0**-149])
    assert elastic.get_total_norm(least).item() == 2.0**-149


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: elastic.clip_grad_norm_([1.0], 1.0), "parameters[0] must be a tensor"),
        (lambda: elastic.clip_grad_norm_(3, 1.0), "parameters must be"),
        (lambda: elastic.clip_grad_norm_([], -1.0), "max_norm must be"),
        (lambda: elastic.clip_grad_norm_([], math.nan), "max_norm must be"),
        (lambda: elastic.get_total_norm([], group=[1]), "group must be"),
        (lambda: elastic.mean([], group=1), "group must be a process group, a mesh"),
        (lambda: elastic.get_total_norm([torch.ones(2).to_sparse()]), "tensors[0] must"),
        (lambda: elastic.get_total_norm([torch.ones(2).long()]), "tensors[0] must be of"),
    ],
)
def test_wrong_arguments(call, text):
    with pytest.raises((TypeError, ValueError)) as raised:
        call()
    assert text in str(raised.value) and str(raised.value).startswith("fastseed.elastic.")


def test_a_gradient_that_overlaps_itself_is_refused_before_others_are_scaled():
    one, two = (torch.nn.Parameter(torch.zeros(3)) for _ in range(2))
    one.grad, two.grad = torch.full((3,), 4.0), torch.ones(1).expand(3)
    with pytest.raises(ValueError, match=r"parameters\[1\]\.grad must not overlap itself"):
        elastic.clip_grad_norm_([one, two], 1.0)
    assert one.grad.tolist() == [4.0] * 3


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
def test_wrong_values_and_weights(arguments, weights, error, text):
    with pytest.raises(error) as raised:
        elastic.mean(arguments, weights=weights)
    assert str(raised.value).startswith(f"fastseed.elastic.mean: {text}")
