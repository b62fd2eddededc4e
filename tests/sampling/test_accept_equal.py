"""Speculative decoding with the target's noise: the tokens are those without it, for any draft."""

import functools
import math
import struct

import numpy as np
import pytest
import torch
from helpers import speculation, vectors
from helpers.operator_calls import CPU_PATHS, on_path
from helpers.paths import ROOT

from fastseed._backend.reference import sampling as reference
from fastseed.random import StreamBank
from fastseed.sampling import accept_equal, sample, thresholds

B, K, V = 6, 4, 50
FILTERS = {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.01}


def inputs():
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(B, K + 1, V, generator=generator) * 2
    draft = target[:, :K] + 0.5 * torch.randn(B, K, V, generator=generator)
    keys, at = list(range(B)), torch.arange(B) * 100
    drafted = [sample(draft[:, i], keys, at + i, **FILTERS) for i in range(K)]
    return torch.stack(drafted, 1), target, keys, at


@pytest.mark.parametrize("filters", [{}, FILTERS, {"temperature": 0}])
def test_tokens_are_those_of_sample_up_to_the_first_that_differs(filters):
    drafted, target, keys, at = inputs()
    found = accept_equal(drafted, target, keys, at, **filters)
    for row in range(B):
        expected = [
            int(sample(target[row : row + 1, i], keys[row : row + 1], int(at[row]) + i, **filters))
            for i in range(K + 1)
        ]
        count = next((i for i in range(K) if drafted[row, i] != expected[i]), K)
        assert int(found.accepted[row]) == count
        assert found.tokens[row].tolist() == expected[: count + 1] + [-1] * (K - count)
    if filters:
        assert len(set(found.accepted.tolist())) > 1


def test_parameters_of_each_row_and_forms_of_keys():
    drafted, target, keys, at = inputs()
    of_rows = {
        "temperature": torch.linspace(0.5, 2, B),
        "top_k": torch.arange(B),
        "top_p": torch.linspace(0.5, 1, B),
        "min_p": torch.linspace(0, 0.1, B),
    }
    whole = accept_equal(drafted, target, keys, at, **of_rows)
    for row in range(B):
        one = slice(row, row + 1)
        own = {name: value[one] for name, value in of_rows.items()}
        alone = accept_equal(drafted[one], target[one], keys[one], at[one], **own)
        assert torch.equal(alone.tokens[0], whole.tokens[row])
    bank = StreamBank(B, "bank")
    bank.reseed_from_seeds(keys)
    expected = sample(target[:, 0], bank.keys, at)
    assert torch.equal(accept_equal(drafted, target, bank.keys, at).tokens[:, 0], expected)
    with pytest.raises(TypeError, match="keys must be a tensor or a sequence of integers, got Str"):
        accept_equal(drafted, target, bank, at)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes_strides_and_devices(dtype, device):
    drafted, target, keys, at = inputs()
    narrow = target.to(dtype)
    expected = accept_equal(drafted, narrow.float(), keys, at)
    spaced = torch.stack((narrow, narrow), -1)[..., 0]
    for logits in (narrow, spaced, narrow.transpose(0, 1).contiguous().transpose(0, 1)):
        found = accept_equal(drafted.to(device), logits.to(device), keys, at.to(device))
        assert torch.equal(found.tokens.cpu(), expected.tokens)


def test_no_drafted_token_leaves_the_token_of_sample():
    _, target, keys, at = inputs()
    found = accept_equal(torch.zeros(B, 0, dtype=torch.int64), target[:, :1], keys, at)
    assert torch.equal(found.tokens[:, 0], sample(target[:, 0], keys, at))
    assert found.accepted.tolist() == [0] * B


def changed(index, value):
    arguments = list(inputs())
    arguments[index] = value
    return arguments


@pytest.mark.parametrize(
    ("index", "value", "kind", "text"),
    [
        (0, torch.zeros(B, K), TypeError, "draft_tokens must be of dtype torch.int64"),
        (0, torch.full((B, K), V), ValueError, "draft_tokens must be in [0, 49], got 50"),
        (0, torch.zeros(B, 2, dtype=torch.int64), ValueError, "draft_tokens must be of shape"),
        (1, torch.zeros(B, 0, V), ValueError, "target_logits must be of shape (B, K + 1, V)"),
        (1, torch.zeros(1).expand(1, 1, 2**24 + 1), ValueError, "target_logits must be of at mo"),
        (1, torch.full((B, K + 1, V), math.nan), ValueError, "target_logits must have a token"),
        (2, [1, 2, None, 4, 5, 6], ValueError, "keys must be given for every row"),
        (3, 2**56 - K, ValueError, "positions must be in"),
    ],
)
def test_errors_name_the_argument(index, value, kind, text):
    with pytest.raises(kind) as error:
        accept_equal(*changed(index, value))
    assert str(error.value).startswith(f"fastseed.sampling.accept_equal: {text}")


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("settings", "rows", "tokens"),
    [
        (speculation.SETTINGS[-1:], 8, 12),
        pytest.param(speculation.SETTINGS, 20, 40, marks=pytest.mark.slow),
    ],
)
def test_no_token_differs_for_any_draft_model_and_setting(settings, rows, tokens):
    """``python -m helpers.speculation`` does it with a million."""
    counts = list(speculation.differing(rows, tokens, settings))
    assert [count for *_, count in counts] == [0] * 5 * len(settings)


def test_other_noise_accepts_less():
    """The control: it is the shared noise that lets drafts be accepted."""
    keys, draft = speculation.keys_of(10), speculation.TARGET

    def verify(drafted, target, at):
        return accept_equal(drafted, target, keys, at)

    own = speculation.speculate(draft, speculation.keys_of(20)[10:], 30, verify)
    shared = speculation.speculate(draft, keys, 30, verify)
    assert shared.accepted == shared.tried and own.accepted < own.tried / 2
    assert torch.equal(own.tokens, shared.tokens)  # slower, and still the same text


def test_acceptance_is_that_of_the_races():
    """Two races with the same noise have winner j with probability 1 / sum max(p/p_j, q/q_j).

    Their sum over j lies between (1 - d) / (1 + d) and 1 - d.
    """
    n = 20_000
    generator = torch.Generator().manual_seed(3)
    p, q = (torch.randn(12, generator=generator).mul(1.5).softmax(0) for _ in range(2))
    keys = speculation.keys_of(n)
    logits, rows = p.log().expand(n, 2, 12), (n, 1)
    drafted = sample(q.log().expand(n, 12), keys, 0)
    equal = accept_equal(drafted.view(rows), logits, keys, 0).accepted.float().mean().item()
    ratios = torch.maximum(p[None] / p[:, None], q[None] / q[:, None])
    expected = (1 / ratios.sum(1)).sum().item()
    d = float((p - q).abs().sum() / 2)
    assert abs(equal - expected) < 5 * math.sqrt(expected * (1 - expected) / n)
    assert (1 - d) / (1 + d) < expected < 1 - d


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("draft", speculation.DRAFTS)
def test_row_of_the_table(draft):
    assert speculation.row(draft) in (ROOT / "docs" / "sampling.md").read_text().splitlines()


rows = functools.partial(vectors.fields_of, "sampling")


def real(text: str) -> float:
    """A number from its bits, float32 or float64."""
    value: float = struct.unpack(">f" if len(text) == 8 else ">d", bytes.fromhex(text))[0]
    return value


def bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def numbers(fields: list[str]) -> torch.Tensor:
    return torch.tensor([[real(field) for field in fields]], dtype=torch.float32)


def test_reference_gives_the_known_noise():
    for lo, hi, position, token, word, noise in rows("noise"):
        stream = reference.token_stream((int(lo, 16), int(hi, 16)), int(position))
        tokens = np.array([int(token)], np.uint64)
        assert f"{int(reference.token_words(stream, tokens)[0]):016x}" == word
        assert bits(reference.token_noise(stream, tokens)[0]) == noise


@pytest.mark.parametrize("path", CPU_PATHS)
def test_thresholds_are_the_known_ones(path, monkeypatch):
    monkeypatch.setattr(thresholds, "sampling_threshold", on_path("sampling_threshold", path))
    for temperature, top_k, top_p, min_p, first, n, *fields in rows("threshold"):
        assert len(fields) == int(n) + 1
        logits, heat = numbers(fields[:-1]), torch.tensor([real(temperature)], dtype=torch.float64)
        filters = int(top_k), real(top_p), real(min_p)
        checked = thresholds.check_filters("sampling.sample", *filters, logits)
        found = int(thresholds.threshold_of(thresholds.Rows(logits, heat), checked))
        # A code counts the row's tokens from `first` on, unless it is that of a logit alone.
        assert found - (int(first) if found % 2**28 else 0) == int(fields[-1])
