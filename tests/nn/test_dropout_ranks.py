"""Masks on real ranks: any layout has those of one process, bit for bit; torch's own has not."""

from __future__ import annotations

import pytest
from helpers.processes import run_ranks


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_every_layout_has_the_masks_of_one_process(world_size):
    for found in run_ranks("dropout_ranks.py", world_size):
        assert found.pop("partial").startswith(
            "fastseed.nn.Dropout: tensor must have no placements"
        )
        assert found.pop("torch") is False, "the negative control"
        assert {"rows", "uneven", "local heads"} < set(found) and len(found) >= 7
        assert [f"{case}: {why}" for case, why in found.items() if why is not True] == []
