"""Known answers of noise and thresholds; ``tests/backend`` has those of the operators."""

import functools
import struct

import numpy as np
import pytest
import torch
from helpers import vectors
from helpers.operator_calls import CPU_PATHS, on_path

from fastseed._backend.reference import sampling as reference
from fastseed.sampling import thresholds

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
