"""Every backend gives the known answers of ``vectors/sampling.txt``, and these never change."""

from __future__ import annotations

import functools
import struct

import numpy as np
import pytest
import torch
from helpers import vectors
from helpers.simd import set_simd

from fastseed._backend import derive
from fastseed._backend.ops.register import REFERENCES
from fastseed._backend.ops.sampling import LEAST_CODE
from fastseed._backend.reference import sampling as reference
from fastseed.sampling import thresholds

FIRST_RELEASE = (472, "a31e83744cf4582d7120b752fab29362871bda49bed5450860055b386fd5d8a5")
KINDS = {"noise": 84, "mass": 88, "threshold": 103, "race": 108}
BACKENDS = ("reference", *derive.simd_paths())


rows = functools.partial(vectors.fields_of, "sampling")


def real(text: str) -> float:
    """A number from its bits, float32 or float64."""
    value: float = struct.unpack(">f" if len(text) == 8 else ">d", bytes.fromhex(text))[0]
    return value


def bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def numbers(fields: list[str]) -> torch.Tensor:
    return torch.tensor([[real(field) for field in fields]], dtype=torch.float32)


def key(fields: list[str]) -> torch.Tensor:
    return torch.tensor([[int(fields[0], 16), int(fields[1], 16)]], dtype=torch.uint64)


def winner(race, logits, key, position, temperature, least, first) -> list[str]:
    """Token and score that an operator gives, as a row has them."""
    score, token = torch.empty(1, 1, dtype=torch.float64), torch.empty(1, 1, dtype=torch.int64)
    heat = torch.tensor([temperature], dtype=torch.float64)
    at = torch.tensor([position]), heat, torch.tensor([least])
    race(score, token, logits, key, *at, first)
    return [str(token.item()), bits(score.item())]


@pytest.fixture(params=BACKENDS)
def race(request, monkeypatch):
    """The operator of a backend, and the filters with it."""
    if request.param == "reference":
        found = REFERENCES
        monkeypatch.setattr(thresholds, "sampling_histogram", found["sampling_histogram"])
        return found["sampling_race"]
    set_simd(request.param)
    return torch.ops.fastseed.sampling_race.default


def test_vectors_are_frozen():
    assert vectors.frozen("sampling")[0] == FIRST_RELEASE
    vectors.check_file("sampling", KINDS)


def test_reference_gives_the_known_noise():
    for lo, hi, position, token, word, noise in rows("noise"):
        stream = reference.token_stream((int(lo, 16), int(hi, 16)), int(position))
        tokens = np.array([int(token)], np.uint64)
        assert f"{int(reference.token_words(stream, tokens)[0]):016x}" == word
        assert bits(reference.token_noise(stream, tokens)[0]) == noise


def test_reference_gives_the_known_masses():
    for logit, greatest, temperature, mass in rows("mass"):
        x = np.array([real(logit)], np.float32)
        found = reference.token_masses(x, np.float32(real(greatest)), real(temperature))
        assert found.tolist() == [int(mass)]


def test_noise_is_the_score_of_a_logit_of_zero(race):
    for lo, hi, position, token, _, noise in rows("noise"):
        at = key([lo, hi]), int(position)
        found = winner(race, torch.zeros(1, 1), *at, 1.0, LEAST_CODE, int(token))
        assert found == [token, noise]


def test_histograms_give_the_known_masses(race):
    histogram = thresholds.sampling_histogram
    zero = torch.zeros(1, dtype=torch.int64)
    for logit, greatest, temperature, mass in rows("mass"):
        out = torch.empty(1, 4096, dtype=torch.int64)
        heat = torch.tensor([real(temperature)], dtype=torch.float64)
        histogram(out, numbers([logit]), zero, zero, numbers([greatest])[0], heat, 4, 0)
        assert out.sum().item() == int(mass)


def test_thresholds_are_the_known_ones(race):
    for temperature, top_k, top_p, min_p, first, n, *fields in rows("threshold"):
        assert len(fields) == int(n) + 1
        logits, heat = numbers(fields[:-1]), torch.tensor([real(temperature)], dtype=torch.float64)
        filters = int(top_k), real(top_p), real(min_p)
        checked = thresholds.check_filters("sampling.sample", *filters, logits)
        found = int(thresholds.threshold_of(thresholds.Rows(logits, heat), checked))
        # A code counts the row's tokens from `first` on, unless it is that of a logit alone.
        assert found - (int(first) if found % 2**28 else 0) == int(fields[-1])


def test_races_have_the_known_winners(race):
    for lo, hi, position, temperature, least, first, n, *fields in rows("race"):
        assert len(fields) == int(n) + 2
        at = key([lo, hi]), int(position)
        more = real(temperature), int(least), int(first)
        assert winner(race, numbers(fields[:-2]), *at, *more) == fields[-2:]
