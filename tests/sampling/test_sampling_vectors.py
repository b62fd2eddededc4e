"""Every backend gives the known answers of ``vectors/sampling.txt``, and these never change."""

from __future__ import annotations

import functools
import struct

import numpy as np
import pytest
import torch
from helpers import vectors
from helpers.simd import set_simd

import fastseed
from fastseed._backend import derive
from fastseed._backend.ops.register import REFERENCES
from fastseed._backend.reference import sampling as reference
from fastseed.sampling import thresholds, tokens

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


@pytest.fixture(params=BACKENDS)
def race(request, monkeypatch):
    """The operator of a backend, and the public functions with it."""
    if request.param == "reference":
        found = REFERENCES
        monkeypatch.setattr(tokens, "sampling_race", found["sampling_race"])
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
        found, scores = fastseed.sampling.sample(
            torch.zeros(1, 1), key([lo, hi]), int(position), vocab_offset=int(token),
            return_scores=True,
        )  # fmt: skip
        assert (found.tolist(), bits(scores.item())) == ([int(token)], noise)


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
        found = fastseed.sampling.find_threshold(
            numbers(fields[:-1]), temperature=real(temperature), top_k=int(top_k),
            top_p=real(top_p), min_p=real(min_p), vocab_offset=int(first),
        )  # fmt: skip
        assert found.tolist() == [int(fields[-1])]


def test_races_have_the_known_winners(race):
    for lo, hi, position, temperature, least, first, n, *fields in rows("race"):
        assert len(fields) == int(n) + 2
        found, scores = fastseed.sampling.sample(
            numbers(fields[:-2]), key([lo, hi]), int(position), temperature=real(temperature),
            vocab_offset=int(first), threshold=torch.tensor([int(least)]), return_scores=True,
        )  # fmt: skip
        assert [str(found.item()), bits(scores.item())] == fields[-2:]
