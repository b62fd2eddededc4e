"""The same weights under ``fully_shard`` on any mesh as in one process."""

from __future__ import annotations

import functools
import math

import pytest
from helpers.processes import run_ranks

ALL = ("alone", "float32", "kept", "recomputed", "half")
CASES = {
    "1": ALL,
    "2": (*ALL, "tensor parallel"),
    "3": ALL,
    "4": ("float32", "tensor parallel"),
    "2x2": ("float32", "half"),
    "2x1": ("float32",),
}


@functools.cache
def results(mesh: str) -> dict[str, str]:
    """Return the digest of each case, on which all ranks agree."""
    ranks = math.prod(map(int, mesh.split("x")))
    first, *others = run_ranks("elastic_sharded.py", ranks, mesh, *CASES[mesh])
    assert all(other == first for other in others)
    return first


def test_two_ranks_train_as_one_process():
    cases = ("alone", "float32", "other modules", "other frozen modules", "replicas differ")
    first, second = run_ranks("elastic_sharded.py", 2, "2", *cases)
    for found, other, own in ((first, 1, 0), (second, 0, 1)):
        assert "must agree, but parameter 'weight' is" in found.pop("replicas differ")
        for case in cases[2:4]:
            error = found.pop(case)
            assert "must run the same modules under fully_shard in each micro-step" in error
            assert f"but rank {other} did not as rank {own} of the group" in error
    assert first == second
    assert first["float32"] == first["alone"]


@pytest.mark.slow
@pytest.mark.parametrize("mesh", CASES)
def test_any_mesh_trains_as_one_process(mesh):
    found, alone = dict(results(mesh)), results("1")["alone"]
    assert found.pop("half", results("1")["half"]) == results("1")["half"] != alone
    found.pop("tensor parallel", None)
    assert set(found.values()) == {alone}


@pytest.mark.slow
def test_data_ranks_do_not_matter_beside_tensor_parallelism():
    assert results("2")["tensor parallel"] == results("4")["tensor parallel"]
