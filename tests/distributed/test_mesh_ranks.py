"""Meshes of four and eight real ranks, FSDP2 and DTensor: which ranks draw the same."""

from __future__ import annotations

import json

import pytest
from helpers.processes import run_ranks

NAMES = ("dp", "tp", "pp")
ALONG = {  # (outside, inside fork("tensor-parallel"))
    "default": ("dp tp pp", "dp tp pp"),
    "dp": ("dp", "dp tp pp"),
    "pp dp": ("dp pp", "dp tp pp"),
    "none": ("", "dp tp pp"),
}


@pytest.fixture(scope="module", params=[4, pytest.param(8, marks=pytest.mark.slow)])
def ranks(request):
    """Return what the ranks of ``scripts/mesh_ranks.py`` found."""
    return run_ranks("mesh_ranks.py", request.param, timeout=200)


def groups(values):
    found = {}
    for rank, value in enumerate(values):
        found.setdefault(json.dumps(value), []).append(rank)
    return sorted(found.values())


def coordinates(cases, along):
    return [[case["coordinates"][NAMES.index(name)] for name in along.split()] for case in cases]


def test_exactly_the_ranks_that_should_share_a_stream_share_it(ranks):
    checked = 0
    for cases in zip(*(rank["meshes"] for rank in ranks), strict=True):
        outside, inside = ALONG[cases[0]["distinct_over"]]
        for stream in cases[0]["draws"]:
            expected = groups(coordinates(cases, inside if stream == "forked" else outside))
            assert groups([case["draws"][stream] for case in cases]) == expected, (cases[0], stream)
            checked += 1
    assert checked == (12 if len(ranks) == 4 else 16) * 6


def test_ranks_of_one_data_rank_get_the_same_data(ranks):
    for cases in zip(*(rank["meshes"] for rank in ranks), strict=True):
        for case in cases:
            assert case["data"] == [case["coordinates"][0], case["shape"][0]]


def test_coordinates_count_where_a_mesh_orders_ranks_otherwise(ranks):
    n = len(ranks)
    assert [rank["backwards"] for rank in ranks] == [[r, n - 1 - r] for r in range(n)]


def test_wrong_meshes_are_refused_on_every_rank(ranks):
    for rank, found in enumerate(ranks):
        unnamed, part, one = found["refused"]
        assert unnamed.startswith(
            "fastseed.init: mesh must be a mesh with names: init_device_mesh("
        )
        assert part.startswith(
            f"fastseed.init: mesh must be a mesh of the {len(ranks)} ranks of the job"
        )
        assert one.startswith("fastseed.init: mesh['dp'][0] must be in [0, ")
        assert one.endswith("(on rank 0)") is (rank != 0)


def test_wrapping_a_model_changes_no_random_number(ranks):
    """FSDP2 over tensor parallelism: the seeds, random numbers and initial parameters."""
    assert [rank["wrapped"] for rank in ranks] == [{"same": True, "wrapping draws": False}] * len(
        ranks
    )


def test_dtensors_tracker_does_not_replace_the_generators(ranks):
    """On CPUs torch makes none: random operators draw from the generators that reseed set."""
    for rank in ranks:
        found = rank["tracker"]
        assert found["manual_seed changes nothing"] is True
        assert found["tracker"] == [True, True, True]
        assert found["Replicate"] == found["Shard"] == [True, True]
        assert found["state"] is True
    assert len(groups([rank["tracker"]["shared"] for rank in ranks])) == 1


def test_masks_of_a_parallel_region_repeat_in_recomputation(ranks):
    for rank in ranks:
        forward, again = rank["checkpointed"]
        assert forward == again
    pairs = [[r, r + 1] for r in range(0, len(ranks), 2)]
    assert groups([rank["checkpointed"][0][0] for rank in ranks]) == pairs
    assert groups([rank["checkpointed"][0][1] for rank in ranks]) == [
        [r] for r in range(len(ranks))
    ]
