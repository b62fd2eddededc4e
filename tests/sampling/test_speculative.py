"""Which drafted tokens are accepted, and what follows them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fastseed._backend.reference import sampling as reference
from fastseed.random import StreamBank
from fastseed.sampling import accept_or_resample

B, K, V = 6, 4, 50
POSITIONS = torch.arange(B) * 100


def keys(rows=B):
    bank = StreamBank(rows, "bank")
    bank.reseed_from_seeds(range(rows))
    return bank.keys


def probabilities(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, V, generator=generator).mul(2).softmax(-1)


def inputs():
    draft = probabilities(B, K)
    tokens = draft.view(B * K, V).multinomial(1, generator=torch.Generator().manual_seed(5))
    target = (probabilities(B, K + 1, seed=1) + 2 * probabilities(B, K + 1)) / 3
    target[:, :K] = (target[:, :K] + draft) / 2
    return tokens.view(B, K), draft, target, keys(), POSITIONS


def by_the_reference(tokens, draft, target, own, positions):
    """The specification, a row at a time."""
    found = []
    for row in range(len(tokens)):
        lo, hi = own[row].tolist()
        out = []
        for i in range(tokens.size(1) + 1):
            position = int(positions[row]) + i
            p = target[row, i].numpy()
            weights = p
            if i < tokens.size(1):
                token, q = int(tokens[row, i]), draft[row, i].numpy()
                pair = np.array([p[token], max(q[token] - p[token], 0)], np.float32)
                if reference.winner(pair, (lo, hi), position, 2, 0.0, 0, 0, True)[1] == 0:
                    out.append(token)
                    continue
                weights = np.maximum(p - q, 0)
            out.append(reference.winner(weights, (lo, hi), position, 3, 0.0, 0, 0, True)[1])
            break
        found.append(out + [-1] * (tokens.size(1) + 1 - len(out)))
    return torch.tensor(found)


def test_results_are_those_of_the_specification():
    found = accept_or_resample(*inputs())
    assert torch.equal(found.tokens, by_the_reference(*inputs()))
    assert torch.equal(found.accepted, (found.tokens >= 0).sum(1) - 1)
    assert len(set(found.accepted.tolist())) > 2


def test_rows_do_not_depend_on_the_batch():
    whole = accept_or_resample(*inputs())
    for row in range(B):
        part = [argument[row : row + 1] for argument in inputs()]
        found = accept_or_resample(*part)
        assert torch.equal(found.tokens, whole.tokens[row : row + 1])


def test_equal_models_accept_everything():
    tokens, draft, target, own, at = inputs()
    target[:, :K] = draft
    found = accept_or_resample(tokens, draft, target, own, at)
    assert torch.equal(found.tokens[:, :K], tokens) and found.accepted.tolist() == [K] * B


def test_impossible_tokens_are_rejected():
    tokens, draft, target, own, at = inputs()
    target[:, 0].scatter_(1, tokens[:, :1], 0.0)
    found = accept_or_resample(tokens, draft, target, own, at)
    assert found.accepted.tolist() == [0] * B
    assert (found.tokens[:, 0] != tokens[:, 0]).all() and (found.tokens[:, 1:] == -1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_give_what_the_same_numbers_give(dtype):
    tokens, draft, target, own, at = inputs()
    draft, target = draft.to(dtype), target.to(dtype)
    found = accept_or_resample(tokens, draft, target, own, at)
    expected = accept_or_resample(tokens, draft.float(), target.float(), own, at)
    assert torch.equal(found.tokens, expected.tokens)


def changed(index, value):
    arguments = list(inputs())
    arguments[index] = value
    return arguments


INVALID = [(math.nan, "NaN"), (math.inf, "infinity"), (-0.5, "a negative number"), (0.0, "zeros")]


@pytest.mark.parametrize(
    "value", [value for value, _ in INVALID], ids=[name for _, name in INVALID]
)
def test_invalid_probabilities_are_errors(value):
    target = inputs()[2]
    target[2] = value
    with pytest.raises(ValueError, match=r"target_probs must have a token .* got row 2"):
        accept_or_resample(*changed(2, target))


@pytest.mark.parametrize(
    ("index", "value", "kind", "text"),
    [
        (0, torch.zeros(B, K), TypeError, "draft_tokens must be of dtype torch.int64"),
        (0, torch.full((B, K), V), ValueError, "draft_tokens must be in [0, 49], got 50"),
        (0, torch.zeros(B, 2, dtype=torch.int64), ValueError, "draft_tokens must be of shape"),
        (1, torch.zeros(B, K, 3), ValueError, "draft_probs must be (B, K, V) for target_probs"),
        (1, torch.zeros(B, V), ValueError, "draft_probs must be of shape (B, K, V)"),
        (2, torch.zeros(B, 1, V), ValueError, "draft_probs must be (B, K, V) for target_probs"),
        (2, None, TypeError, "target_probs must be a tensor"),
        (3, [1], ValueError, "keys must be of shape (6,)"),
        (4, -5, ValueError, "positions must be in"),
    ],
)
def test_errors_name_the_argument(index, value, kind, text):
    with pytest.raises(kind) as error:
        accept_or_resample(*changed(index, value))
    assert str(error.value).startswith(f"fastseed.sampling.accept_or_resample: {text}")


def test_rounded_probabilities_without_a_residual_choose_from_the_target():
    draft, target, n = torch.tensor([0.5, 0.5]), torch.tensor([0.498046875, 0.5]), 4000
    drafted = torch.zeros(n, 1, dtype=torch.int64)
    found = accept_or_resample(drafted, draft.expand(n, 1, 2), target.expand(n, 2, 2), range(n), 0)
    rejected = found.accepted == 0
    assert rejected.any() and bool((found.tokens[rejected, 0] >= 0).all())


def test_the_positions_of_all_drafted_tokens_are_in_range():
    """Position + K stays below 2**56, above which the role's number is."""
    *given, _ = inputs()
    last = 2**56 - 1 - K
    accept_or_resample(*given, last)
    for positions in (last + 1, torch.full((B,), last + 1)):
        with pytest.raises(ValueError, match=rf"positions must be in \[0, {last}\]"):
            accept_or_resample(*given, positions)
