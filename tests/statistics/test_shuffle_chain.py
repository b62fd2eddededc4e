"""How many rounds the shuffle needs: the exact Markov chain of ideal round functions.

With them, round r is a random element: it shifts each column by a number of its own (r even), or
each row. What the distribution of some cells becomes can be computed to the last digit. Distances
are total variation from equally likely; ``docs/spec/derivation.md`` states those of this file.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest


def pair_distance(a: int, b: int, rounds: int) -> float:
    """Distances of two cells, from the worst start: p[row difference, column difference]."""
    worst = 0.0
    for start in ((0, 1), (1, 0), (1, 1)):
        p = np.zeros((a, b))
        p[start] = 1
        for r in range(rounds):
            if r % 2 == 0:  # cells of different columns are shifted apart by any number of rows
                p[:, 1:] = p[:, 1:].mean(0)
            else:
                p[1:, :] = p[1:, :].mean(1, keepdims=True)
        even = np.full((a, b), 1 / (a * b - 1))
        even[0, 0] = 0
        worst = max(worst, 0.5 * float(np.abs(p - even).sum()))
    return worst


def whole_distance(rounds: int) -> float:
    """Distances of all four cells of a 2 x 2 rectangle: the 24 orders."""
    states = list(itertools.permutations(range(4)))
    p = {state: float(state == states[0]) for state in states}
    for r in range(rounds):
        new = dict.fromkeys(states, 0.0)
        for state, chance in p.items():
            for shift in itertools.product(range(2), repeat=2):
                # cells are 2 row + column; each column (row) is shifted by its own number
                if r % 2 == 0:
                    moved = tuple(c ^ 2 * shift[c & 1] for c in state)
                else:
                    moved = tuple(c ^ shift[c >> 1] for c in state)
                new[moved] += chance / 4
        p = new
    return 0.5 * sum(abs(chance - 1 / 24) for chance in p.values())


def test_whole_orders_of_four_cells():
    assert 1e-8 < whole_distance(24) < 8e-8
    assert whole_distance(12) > 1e-4


def test_few_cells():
    assert 1e-8 < pair_distance(4, 4, 24) < 2e-7
    assert pair_distance(4, 4, 12) > 1e-5


@pytest.mark.parametrize(("a", "b"), [(256, 256), (258, 255), (1000, 1001)])
def test_many_cells(a, b):
    assert pair_distance(a, b, 12) < 1e-12
    assert pair_distance(a, b, 2) > 1e-4


def test_more_cells_are_closer():
    found = [pair_distance(side, side, 12) for side in (16, 64, 256, 512)]
    assert found == sorted(found, reverse=True)
