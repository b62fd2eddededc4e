"""The operator derive_seed_grid: every index with every worker, as the reference has it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.support import needs_native

from fastseed._backend import derive_ops
from fastseed._backend.derive_ops import signed
from fastseed._backend.reference import philox

NAME = philox.name_key(philox.scope_key(42, 1, 7, 0), philox.name_words("rollout"))
SIZES = [(0, 3), (3, 0), (1, 1), (5, 7), (13, 1), (1, 13), (63, 16), (2, 70_001), (9000, 8)]


def grid(rows: int, columns: int, own: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ranks, workers and indices, the greatest ones among them.

    Ranks and workers are each row's own, or those of all.
    """
    numbers = np.random.default_rng(rows + columns)
    indices = numbers.integers(0, 2**64, rows, np.uint64)
    workers = numbers.integers(0, 2**32, (rows if own else 1, columns), np.uint64)
    ranks = numbers.integers(0, 2**24 - 1, rows if own else 1, np.uint64)
    indices[-1:], workers[-1:, -1:], ranks[-1:] = 2**64 - 1, 2**32 - 1, 2**24 - 1
    return ranks, workers, indices


@pytest.mark.parametrize("path", derive_ops.simd_paths() or [None])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_equals_the_keys_of_single_streams(path, rows, columns, own):
    if path is not None:
        derive_ops.set_simd(path)
    ranks, workers, indices = given = grid(rows, columns, own)
    found = derive_ops.derive_seed_grid(NAME, *given)
    assert found.dtype == np.uint64 and found.shape == (rows, columns)
    assert np.array_equal(found, philox.derive_seed_grid(NAME, *given))
    for row, column in ((0, 0), (rows - 1, columns - 1)) if found.size else ():
        of = row if own else 0
        where = int(ranks[of]), int(workers[of, column]), int(indices[row])
        assert found[row, column] == philox.stream_key(NAME, *where) % 2**64


def arguments(rows: int, columns: int, own: bool = False):
    ranks, workers, indices = (torch.from_numpy(array) for array in grid(rows, columns, own))
    out = torch.zeros(rows, columns, dtype=torch.uint64)
    return [out, indices, workers, ranks, *map(signed, NAME)]


@needs_native
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("rows", "columns"), SIZES[:4])
def test_opcheck(rows, columns, own):
    op = torch.ops.fastseed.derive_seed_grid.default
    given = tuple(arguments(rows, columns, own))
    assert set(torch.library.opcheck(op, given).values()) == {"SUCCESS"}


@needs_native
def test_refused_tensors():
    good = arguments(4, 3)
    bad = [
        (0, torch.zeros(4, 3, dtype=torch.int64), r"out must be of dtype torch\.uint64"),
        (0, torch.zeros(3, 4, dtype=torch.uint64).T, "out must be contiguous"),
        (0, torch.zeros(3, 4, dtype=torch.uint64), "out must be of shape"),
        (1, torch.zeros(5, dtype=torch.uint64), "out must be of shape"),
        (2, torch.zeros(3, dtype=torch.uint64), "workers must be of shape"),
        (2, torch.zeros(1, 3), r"workers must be of dtype torch\.uint64"),
        (1, good[0].view(-1)[:4], "indices must not share memory"),
    ]
    for at, tensor, says in bad:
        given = [*good[:at], tensor, *good[at + 1 :]]
        with pytest.raises(RuntimeError, match=rf"fastseed\.derive_seed_grid: {says}"):
            torch.ops.fastseed.derive_seed_grid(*given)
    assert not good[0].any()
