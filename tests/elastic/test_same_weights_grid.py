"""One digest of a model over layouts, changes of layout, kills, and what a model may contain.

A row trains a model of 1,719 parameters for 60 steps of AdamW with dropout and clipping. All rows
of a group have one SHA-256 of weights, and one of weights, buffers and optimizer state, on every
rank. What rows do not combine:

- All layouts have the model without features, many have all features at once, and some each feature
  alone and ``torch.compile``, for which each rank compiles for seconds.
- ``fully_shard`` with more ranks than slots is an error.
- ``torch.compile(model)`` has one digest replicated, and another one under ``fully_shard``: torch
  breaks the graph at each module under it, and the compiler then fuses other operations. Where the
  blocks are compiled, it is one.
"""

import json

import pytest
from helpers.processes import run_script
from torch.distributed.fsdp import FSDPModule

pytestmark = pytest.mark.skipif(
    not hasattr(FSDPModule, "set_reduce_scatter_unused_params"),
    reason="fully_shard in slots needs torch 2.13",
)

STEPS = 60
RANKS = (1, 2, 3, 4, 5, 6, 8)
FEATURES = ["autocast", "buffers", "checkpointing", "tied", "unused"]
REPLICATED = [f"{kind}:{ranks}" for kind in ("blocks", "deal") for ranks in RANKS]
SHARDED = [
    *(f"fsdp2:{ranks}" for ranks in RANKS),
    *(f"hsdp:{mesh}" for mesh in ("2x1", "3x1", "2x2", "1x5", "2x3", "3x2", "2x4", "4x2")),
]
SOME = ["blocks:1", "blocks:3", "deal:3", "fsdp2:3", "hsdp:2x2"]
MANY = [
    *(f"blocks:{ranks}" for ranks in RANKS),
    *("deal:3", "deal:8", "fsdp2:2", "fsdp2:3", "fsdp2:5", "fsdp2:8", "hsdp:2x2", "hsdp:3x2"),
]
# (layout, the step until which it trains, the rank that is killed in that step)
CHANGES = [("blocks:3", 17, 1), ("fsdp2:2", 27, None), ("deal:5", 38, 4), ("hsdp:2x2", STEPS, None)]
MORE_CHANGES = [
    [("hsdp:2x3", 20, 5), ("blocks:8", 31, 0), ("blocks:1", 40, None), ("fsdp2:6", STEPS, None)],
    [("fsdp2:4", 12, 0), ("fsdp2:3", 30, 2), ("hsdp:4x2", 45, 3), ("deal:6", STEPS, None)],
    [("blocks:5", 9, None), ("blocks:6", 33, 2), ("deal:4", 50, 1), ("blocks:2", STEPS, None)],
]


def row(features, slots, *jobs):
    names = ("layout", "until", "victim")
    jobs = [dict(zip(names, job, strict=True)) for job in jobs]
    return {"features": features, "slots": slots, "jobs": jobs}


def rows(features, layouts, *changes, slots=8):
    """Return a row for each layout, and one for each list of changes between layouts."""
    alone = [row(features, slots, (layout, STEPS, None)) for layout in layouts]
    return [*alone, *(row(features, slots, *jobs) for jobs in changes)]


GROUPS = {
    "plain, and the same with activation checkpointing": [
        *rows([], [*REPLICATED, *SHARDED], CHANGES, *MORE_CHANGES),
        *rows(["checkpointing"], SOME, CHANGES),
    ],
    "all features": rows(FEATURES, MANY, CHANGES, *MORE_CHANGES),
    **{
        feature: rows([feature], SOME, CHANGES)
        for feature in (*FEATURES, "compile")
        if feature != "checkpointing"
    },
    "replicated and compiled": rows(["compile the model"], ["blocks:1", "blocks:2", "deal:3"]),
    "sharded and compiled": rows(["compile the model"], ["fsdp2:2", "fsdp2:3", "hsdp:2x2"]),
    "1 slot": rows([], [*REPLICATED, "fsdp2:1"], slots=1),
    "3 slots": rows([], [*REPLICATED, "fsdp2:2", "fsdp2:3"], slots=3),
    "7 slots": rows([], [*REPLICATED, "fsdp2:3", "fsdp2:6", "hsdp:2x3"], CHANGES, slots=7),
    "12 slots": rows([], [*REPLICATED, "fsdp2:5", "fsdp2:8", "hsdp:2x4"], CHANGES, slots=12),
}


def check(tmp_path, group, timeout):
    """All rows have one digest, also on all ranks, and jobs after a kill resumed earlier."""
    (tmp_path / "rows.json").write_text(json.dumps(group))
    script = ("same_weights_grid.py", tmp_path, tmp_path / "rows.json")
    found = run_script(*script, timeout=timeout)
    assert len(found) == len(group)
    for key in ("weights", "digest"):
        assert {digest for one in found for digest in one[key]} == {found[0][key][0]}, found
    for one, expected in zip(found, group, strict=True):
        ends = [0, *(job["until"] - (job["victim"] is not None) for job in expected["jobs"])]
        resumed = iter(one["resumed"])
        for job, end in zip(expected["jobs"], ends, strict=False):
            assert job["victim"] is not None or end - 7 < next(resumed) <= end
        assert next(resumed, None) is None
    return found[0]["weights"][0]


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", GROUPS)
def test_every_layout_has_one_digest(name, tmp_path):
    check(tmp_path, GROUPS[name], 3500)


@pytest.mark.slow
def test_layouts_that_change_after_kills_have_one_digest(tmp_path):
    jobs = [("blocks:3", 9, 1), ("fsdp2:2", 10, 1), ("deal:5", 11, None), ("hsdp:2x2", 13, None)]
    group = [row(FEATURES, 8, *jobs), row(FEATURES, 8, ("blocks:1", 13, None))]
    check(tmp_path, group, 300)
