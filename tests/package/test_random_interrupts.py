"""After an interrupt no lock is held, no unit is lost, and the next ``reseed`` repairs the rest."""

from __future__ import annotations

import pytest
from helpers.processes import run_script


@pytest.mark.parametrize("count", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_interrupt_at_random_lines_leaves_nothing_behind(count):
    found = run_script("interrupt_lines.py", 1, count, timeout=280)
    assert found["problems"] == []
    assert sum(found["attempts"].values()) > 0.9 * count and len(found["attempts"]) == 7
