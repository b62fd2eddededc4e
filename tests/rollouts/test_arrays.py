"""Seeds of rollouts in flat arrays: any order, repeated prompts, the same bits as one by one."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch

import fastseed
from fastseed.rollouts import arrays, seed, seeds, table

AT = {"task": 1, "epoch": 2, "master_seed": 42}
PROMPTS = [3, "a", 2**64 - 1, "a", [1, 2], np.array([1, 2]), 0]
SAMPLES = [0, 1, 2**32 - 1, 0, 5, 5, 7]
TURNS = [0, 1, 2**24 - 2, 0, 3, 3, 0]


def test_they_are_the_seeds_of_single_rollouts():
    found = seeds(9, PROMPTS, SAMPLES, TURNS, **AT)
    assert found.dtype == np.int64 and found.shape == (7,) and found.min() >= 0
    expected = [
        seed(9, p, k, turn=t, **AT) for p, k, t in zip(PROMPTS, SAMPLES, TURNS, strict=True)
    ]
    assert found.tolist() == expected and expected[4] == expected[5]
    narrow = seeds(9, PROMPTS, SAMPLES, TURNS, bits=31, **AT)
    assert narrow.tolist() == [number % 2**31 for number in expected]


def test_they_are_the_cells_of_a_table_in_any_order():
    prompts = np.random.default_rng(0).integers(0, 2**63, 300)
    rows = table(4, prompts, 700, turn=5, **AT).array
    at = np.random.default_rng(1).permutation(rows.size)[:100_000]
    found = seeds(4, prompts[at // 700], at % 700, 5, **AT)
    assert np.array_equal(found, rows.reshape(-1)[at])


@pytest.mark.parametrize("backend", [arrays.identity.native, lambda: None])
def test_forms_agree_on_either_backend(backend, monkeypatch):
    monkeypatch.setattr(arrays.identity, "native", backend)
    expected = [seed(9, p, k, turn=2, **AT) for p, k in itertools.product((3, 2**40), (0, 6))]
    prompts, samples = [3, 3, 2**40, 2**40], [0, 6, 0, 6]
    wide = np.array([[3, 3, 2**40, 2**40]] * 2)
    for of_prompts, of_samples, turns in (
        (prompts, samples, 2),
        (tuple(prompts), tuple(samples), np.int64(2)),
        (np.array(prompts, np.uint64), np.array(samples, np.int32), [2] * 4),
        (np.array(prompts, ">i8"), np.array(samples, np.uint8), np.full(4, 2)),
        (torch.tensor(prompts), torch.tensor(samples, dtype=torch.int16), torch.full((4,), 2)),
        (wide.T[:, 0], np.array(samples)[::-1][::-1], np.broadcast_to(np.int64(2), 4)),
        (np.array(prompts, object), samples, (np.uint8(2),) * 4),
    ):
        assert seeds(9, of_prompts, of_samples, turns, **AT).tolist() == expected
    assert seeds(9, [], [], **AT).shape == seeds(9, [], [], [], **AT).shape == (0,)


def test_arguments_are_not_written():
    given = np.array([3, 5]), np.array([0, 1], np.uint64), np.array([7, 8])
    for array in given:
        array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seeds(9, *given, **AT)
    assert [array.tolist() for array in given] == [[3, 5], [0, 1], [7, 8]]


BAD = [
    ({"prompts": "ab"}, TypeError, "prompts must be a sequence of prompts"),
    ({"prompts": {"a": 1, "b": 2}}, TypeError, "prompts must be a sequence of prompts"),
    ({"prompts": np.zeros((2, 3), int)}, ValueError, r"prompts must be .* without padding"),
    ({"prompts": [1, [{"role": "user"}]]}, TypeError, r"prompts\[1\] must be a string, .*chat"),
    ({"prompts": [1, -1]}, ValueError, r"prompts\[1\] must be in"),
    ({"prompts": np.array([1, -1])}, ValueError, r"prompts\[1\] must be in"),
    ({"prompts": np.array([1, -1], np.int8)}, ValueError, r"prompts\[1\] must be in"),
    ({"prompts": [1, 2, 3]}, ValueError, "samples must be a sequence of 3 integers, one for each"),
    ({"samples": 2}, TypeError, "samples must be a sequence of 2 integers"),
    ({"samples": [0]}, ValueError, "samples must be a sequence of 2 integers.* got '1 of them'"),
    ({"samples": [0, 2**32]}, ValueError, r"samples\[1\] must be in \[0, 4294967295\]"),
    ({"samples": np.array([-1, 0])}, ValueError, r"samples\[0\] must be in"),
    ({"samples": [0, True]}, TypeError, r"samples\[1\] must be an integer"),
    ({"samples": np.array([0, 1.0])}, TypeError, r"samples\[0\] must be an integer"),
    ({"turns": [0]}, ValueError, "turns must be a sequence of 2 integers"),
    ({"turns": 2**24 - 1}, ValueError, r"turns must be in"),
    ({"turns": [0, 2**24 - 1]}, ValueError, r"turns\[1\] must be in \[0, 16777214\]"),
    ({"turns": 0.5}, TypeError, "turns must be a sequence of 2 integers"),
    ({"turns": None}, TypeError, "turns must be a sequence of 2 integers"),
    ({"bits": 32}, ValueError, "bits must be one of 63, 31"),
]


@pytest.mark.parametrize(("bad", "error", "text"), BAD)
def test_refused_arguments(bad, error, text):
    given = {"prompts": [1, 2], "samples": [0, 1], "turns": 0, **bad}
    with pytest.raises(error, match=rf"^fastseed\.rollouts\.seeds: {text}"):
        seeds(3, **given, master_seed=42)


def test_equal_seeds_of_31_bits_are_reported_but_not_a_rollout_twice():
    prompts = np.repeat(np.arange(10_000), 16)
    samples = np.tile(np.arange(16), 10_000)
    with pytest.warns(UserWarning, match="have the same seed of 31 bits") as caught:
        found = seeds(3, prompts, samples, bits=31, master_seed=42)
    assert caught[0].filename == __file__
    values, counts = np.unique(found, return_counts=True)
    first = values[counts > 1][0]
    i, j = np.flatnonzero(found == first)
    pairs = int((counts - 1).sum())
    assert 1 <= pairs <= 20  # 6 are expected
    assert f"rollouts {i} and {j} have" in str(caught[0].message)
    assert f"{first} (pairs in all: {pairs})" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seeds(3, [7, 7], [1, 1], bits=31, master_seed=42)


def test_the_master_seed_is_that_of_init():
    fastseed.init(42)
    assert seeds(3, [1], [1]).tolist() == [4847584437782537390]
