"""The determinism section of a configuration: its values, and their application."""

from __future__ import annotations

import random
import sys
import types

import numpy as np
import pytest
import torch
from helpers.support import snapshot

from fastseed.determinism import apply_config, hash_seed
from fastseed.determinism.report import SET, TOO_LATE, UNAVAILABLE, UNCHANGED

HIGHEST = {
    "python_seed": 2**32 - 1,
    "random_seed": 2**64 - 1,
    "numpy_seed": 2**32 - 1,
    "tf_seed": 2**63 - 1,
}


@pytest.fixture(autouse=True)
def tensorflow(monkeypatch):
    """Return the seeds that TensorFlow gets."""
    seeds = []
    module = types.ModuleType("tensorflow")
    module.random = types.SimpleNamespace(set_seed=seeds.append)
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    return seeds


def apply(**keys):
    return apply_config({"epochs": 1240, "determinism": keys, "train": {"a": [1, {}]}})


def test_each_library_gets_its_own_seed(tensorflow):
    report = apply(random_seed=123456, numpy_seed=654321, tf_seed=11111)
    assert random.random() == random.Random(123456).random()
    assert np.random.rand() == np.random.RandomState(654321).rand()
    assert tensorflow == [11111]
    assert [(row.setting, row.now, row.status) for row in report.rows] == [
        ("random_seed", 123456, SET),
        ("numpy_seed", 654321, SET),
        ("tf_seed", 11111, SET),
    ]


def test_a_library_that_is_not_imported_is_reported(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow")
    row = apply(tf_seed=5)["tf_seed"]
    assert (row.wanted, row.now, row.status) == (5, None, UNAVAILABLE)


def test_absent_keys_change_nothing():
    states = snapshot()
    assert apply().rows == ()
    assert snapshot() == states and not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("wanted", [8, "8"])
def test_python_seed_is_compared_with_the_one_in_use(monkeypatch, caplog, wanted):
    monkeypatch.setattr(hash_seed, "found", lambda: ("8", 8))
    assert apply(python_seed=wanted)["python_seed"].status == UNCHANGED
    assert not caplog.records
    monkeypatch.setattr(hash_seed, "found", lambda: ("7", 7))
    report = apply(python_seed=wanted)
    assert report["python_seed"][1:5] == (8, "7", 7, TOO_LATE) and not report.ok
    assert "python_seed is too late" in caplog.text and "PYTHONHASHSEED=8" in caplog.text


@pytest.mark.parametrize("name", HIGHEST)
def test_bounds_and_types(name, tensorflow):
    for value in (0, HIGHEST[name]):
        assert apply(**{name: value})[name].wanted == value
    states, seeds = snapshot(), list(tensorflow)
    for value in (-1, HIGHEST[name] + 1):
        with pytest.raises(ValueError, match=rf"determinism\.{name} must be in"):
            apply(**{"random_seed": 9, name: value})
    for value in (True, 1.0, None, [1], "x", "-1"):
        with pytest.raises(TypeError, match=rf"determinism\.{name} must be an integer"):
            apply(**{name: value})
    assert snapshot() == states and tensorflow == seeds


def test_unknown_keys_and_missing_sections():
    with pytest.raises(ValueError, match=r"must be one of 'python_seed', .*, got 'numpyseed'"):
        apply(numpyseed=1)
    wrong = r"fastseed\.determinism\.apply_config: determinism must be a section"
    for document in ({}, {"determinsm": {}}, {"determinism": None}, {"determinism": [1]}, "c.json"):
        with pytest.raises(ValueError, match=wrong):
            apply_config(document)
