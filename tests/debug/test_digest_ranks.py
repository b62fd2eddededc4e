"""Digests of what is spread over ranks are those of the whole; ranks that differ are named."""

from __future__ import annotations

import json

import pytest
import torch
from helpers.processes import run_job

from fastseed.debug.tree_digest import assert_ranks_agree


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.slow), 4])
def ranks(request, tmp_path_factory):
    """The results of the ranks of ``scripts/digest_ranks.py``."""
    folder = tmp_path_factory.mktemp("ranks")
    run_job("digest_ranks.py", request.param, folder)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(request.param)]


def test_layouts_of_all_kinds(ranks):
    for rank in ranks:
        layouts = {name: case for name, case in rank.items() if name.startswith("layouts")}
        assert len(layouts) == 2
        for count, wrong, same in layouts.values():
            assert (wrong, same) == ([], True) and count >= 8 * 4 * 3


@pytest.mark.parametrize(
    ("case", "checks"), [("FSDP2", 5), ("TP", 1), ("FSDP2 over TP", 1), ("HSDP", 5)]
)
def test_modules_and_optimizers_that_are_sharded(ranks, case, checks):
    assert [rank[case] for rank in ranks] == [[True] * checks] * len(ranks)


def test_sums_over_ranks_are_summed_first(ranks):
    assert [rank["sums"] for rank in ranks] == [True] * len(ranks)


def test_ranks_with_other_names_raise_and_do_not_hang(ranks):
    for rank in ranks:
        for said in rank["other names"]:
            assert said.startswith(
                "RuntimeError: fastseed.debug.digest: all ranks of a mesh must hold the same"
            )


def agreement(ranks, case):
    """The one message of all ranks."""
    (said,) = {rank["agreements"][case] for rank in ranks}
    return said


def test_replicas_agree(ranks):
    assert agreement(ranks, "same") == agreement(ranks, "sharded") == "no error"


def test_ranks_and_tensors_that_differ_are_named(ranks):
    n = len(ranks)
    assert agreement(ranks, "differ") == (
        "RuntimeError: fastseed.debug.check: module must be the same on all "
        f"{n} ranks; compared with rank 0: rank {n - 1}: "
        "differs in module.up.weight, module.down.bias"
    )


def test_names_that_differ_are_named(ranks):
    n = len(ranks)
    assert agreement(ranks, "names").endswith(f"rank {n - 1}: differs in d, b, c")
    said = agreement(ranks, "lengths")
    assert f"rank {n - 1}: differs in 9" in said and said.count("differs in") == n - 1


def test_ranks_that_cannot_digest_are_named_by_all(ranks):
    n = len(ranks)
    reason = "could not be digested (fastseed.debug.digest: the leaf at "
    assert f"rank {n - 1}: {reason}" in agreement(ranks, "undigested")
    assert agreement(ranks, "undigested").count("rank 0: could") == 0
    assert f"rank 0: {reason}" in agreement(ranks, "first undigested")
    assert agreement(ranks, "none can").count(reason) == n


def test_the_single_tensor_is_named(ranks):
    said = agreement(ranks, "all")
    assert (
        said == "no error" if len(ranks) == 2 else "rank 2: differs in (the tensor); rank 3" in said
    )


def test_replicas_of_shards_are_compared(ranks):
    if len(ranks) < 4:
        pytest.skip("two ranks have no replicas of shards")
    assert agreement(ranks, "replicas").endswith("rank 2: differs in w; rank 3: differs in w")


def test_one_process_agrees_with_itself():
    assert assert_ranks_agree(torch.ones(2)) is None
