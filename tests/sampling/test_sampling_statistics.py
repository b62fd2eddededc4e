"""Tokens have the probabilities that they should have: chi-square against exact ones."""

import functools

import pytest
import torch
from helpers.token_filters import survivors

import fastseed
from fastseed.sampling import sample

pytestmark = pytest.mark.proof
N = 1_000_000


@functools.cache
def keys(n: int = N) -> torch.Tensor:
    bank = fastseed.random.StreamBank(n, "bank")
    bank.reseed_from_seeds(torch.arange(n))
    return bank.keys


def p_value(tokens: torch.Tensor, probabilities: torch.Tensor) -> float:
    """Return the p-value of the counts; rare tokens are counted together."""
    from scipy import stats  # a second, which other tests need not wait for

    expected = probabilities.double() * tokens.numel()
    counts = torch.bincount(tokens, minlength=expected.numel()).double()
    assert counts[expected == 0].sum() == 0, "a token that should never be chosen"
    rare = expected < 50
    counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    kept = expected > 5
    if kept.sum() < 2:
        return 1.0  # one token has all of it
    statistic = ((counts - expected) ** 2 / expected.clamp(min=1e-9))[kept].sum()
    return float(stats.chi2.sf(float(statistic), int(kept.sum()) - 1))


def distribution(i: int) -> torch.Tensor:
    """Logits: 2 to 300 tokens, flat to steep."""
    size = (2, 3, 5, 10, 33, 64, 100, 300)[i % 8]
    generator = torch.Generator().manual_seed(i)
    return torch.randn(1, size, generator=generator) * (0.1, 1.0, 3.0, 8.0)[i % 4]


FILTERS = ({}, {"temperature": 0.7, "top_k": 10, "top_p": 0.9}, {"temperature": 2.0, "min_p": 0.05})


def check_tokens(i: int, filters: dict, n: int) -> None:
    x = distribution(i)
    heat = filters.get("temperature", 1.0)
    x = x.masked_fill(~survivors(x, **filters), -torch.inf)  # test_sample.py has the filters
    exact = (x[0].double() / heat).softmax(0)
    found = sample(x.expand(n, -1), keys()[:n], i, temperature=heat)
    assert p_value(found, exact) > 1e-5, (i, filters)


@pytest.mark.parametrize("filters", FILTERS)
def test_tokens_have_their_probabilities(filters):
    for i in range(4):
        check_tokens(i, filters, 50_000)


@pytest.mark.parametrize("i", range(20))
def test_a_million_tokens_have_their_probabilities(i):
    for filters in FILTERS:
        check_tokens(i, filters, N)


def test_positions_of_one_key_are_independent():
    x = torch.zeros(1, 4)
    one = keys()[:1].expand(N, 2)
    found = sample(x.expand(N, -1), one, torch.arange(N))
    pairs = found[:-1] * 4 + found[1:]
    assert p_value(pairs[::2], torch.full((16,), 1 / 16)) > 1e-5


def test_the_check_fails_on_other_probabilities():
    found = sample(torch.zeros(100_000, 4), keys()[:100_000], 0)
    assert p_value(found, torch.tensor([0.26, 0.25, 0.25, 0.24])) < 1e-5
