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


TRIPLES = (  # differences of rows, and of columns: one of each kind of triangle
    *((0, 0, 1, 2), (1, 2, 0, 0), (0, 1, 1, 0), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1)),
    *((1, 1, 1, 0), (0, 1, 1, 2), (1, 2, 0, 1), (1, 2, 1, 2), (1, 2, 1, 1), (1, 1, 1, 2)),
)


def triple_distance(side: int, rounds: int) -> float:
    """Distances of three cells of a square, from the worst of starts."""
    return max(_triple_distance(side, rounds, start) for start in TRIPLES)


def _triple_distance(side: int, rounds: int, start: tuple[int, ...]) -> float:
    """p[row 1 - 0, row 2 - 0, column 1 - 0, column 2 - 0]."""
    p = np.zeros((side,) * 4)
    p[start] = 1
    turn = (2, 3, 0, 1)
    for r in range(rounds):
        q = p if r % 2 == 0 else p.transpose(turn)
        new = np.empty_like(q)
        for i, j in itertools.product(range(side), repeat=2):  # which share a column
            rows = q[:, :, i, j]
            if i == j == 0:
                new[:, :, i, j] = rows
            elif i == 0:
                new[:, :, i, j] = rows.mean(1, keepdims=True)
            elif j == 0:
                new[:, :, i, j] = rows.mean(0, keepdims=True)
            elif i == j:  # cells 1 and 2: their difference stays
                for d in range(side):
                    k = np.arange(side)
                    new[k, (k + d) % side, i, j] = rows[k, (k + d) % side].mean()
            else:
                new[:, :, i, j] = rows.mean()
        p = new if r % 2 == 0 else new.transpose(turn)
    n = side * side
    even = np.full(p.shape, 1 / ((n - 1) * (n - 2)))
    k = np.arange(side)
    even[0, :, 0, :] = even[:, 0, :, 0] = 0
    for i in range(side):
        even[k, k, i, i] = 0
    assert np.isclose(even.sum(), 1) and np.isclose(p.sum(), 1)
    return 0.5 * float(np.abs(p - even).sum())


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
    assert 1e-8 < triple_distance(4, 24) < 3e-7
    assert triple_distance(4, 12) > 1e-5


@pytest.mark.parametrize(("a", "b"), [(256, 256), (258, 255), (1000, 1001)])
def test_many_cells(a, b):
    assert pair_distance(a, b, 12) < 1e-12
    assert pair_distance(a, b, 2) > 1e-4


def test_more_cells_are_closer():
    found = [pair_distance(side, side, 12) for side in (16, 64, 256, 512)]
    assert found == sorted(found, reverse=True)
