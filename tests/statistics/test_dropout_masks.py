"""Dropout masks: rates, neighbours, layers and steps.

Every score is a z, standard normal for random masks; the scores are fixed, and |z| > 5 has a
probability of 6e-7.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fastseed
from fastseed.random.dropout import dropout, threshold_of

ROWS, LENGTH = 256, 4096
P = (0.01, 0.1, 0.25, 0.5, 0.9)


def masks(p: float, name: str = "layer", **axis: int) -> np.ndarray:
    """(ROWS, LENGTH): +1 where an element is dropped, in units that give it variance 1."""
    fastseed.init(42, rank=0, world_size=1)
    rows = []
    for i in range(ROWS):
        at = {"task": 1, **{k: v * i for k, v in axis.items()}}
        label = at.pop("layer", 0)
        key = fastseed.derive_key(f"dropout/{name}.{label}", rank=fastseed.SHARED, **at)
        rows.append(dropout(torch.ones(LENGTH), p, key) == 0)
    rate = threshold_of(p) / 2**16
    dropped: np.ndarray = torch.stack(rows).numpy()
    return (dropped - rate) / np.sqrt(rate * (1 - rate))


def z(values: np.ndarray) -> float:
    return float(values.sum() / np.sqrt(values.size))


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("axis", [{"step": 1}, {"epoch": 1}, {"layer": 1}, {"step": 2**32}])
def test_masks_are_random(p, axis):
    found = masks(p, **axis)
    assert abs(z(found)) < 5, "the rate"
    for lag in (1, 2, 7, 8, 64, 2048):
        assert abs(z(found[:, lag:] * found[:, :-lag])) < 5, f"elements {lag} apart"
        if lag < ROWS:
            assert abs(z(found[lag:] * found[:-lag])) < 5, f"{axis} {lag} apart"
    for phase in range(8):  # the halves of the words of a block
        assert abs(z(found[:, phase::8])) < 5, f"place {phase} of a block"


def test_the_rate_is_that_of_the_threshold():
    """The scale is exact for the rate in use: the mean of what stays is 1."""
    found = dropout(torch.ones(2**24, dtype=torch.float64), 1 / 3, 7)
    rate = threshold_of(1 / 3) / 2**16
    spread = np.sqrt(rate / (1 - rate) / 2**24)
    assert abs(float(found.mean()) - 1) < 5 * spread
