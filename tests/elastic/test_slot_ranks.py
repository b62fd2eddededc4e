"""SlotGradients on several ranks: one digest of weights and optimizer state for any number."""

from __future__ import annotations

import pytest
from helpers.processes import run_ranks

SAME = ("base", "few", "odd", "weighted", "bfloat16", "float64", "scaled", "norm")
CONTROLS = ("base/all_reduce", "base/arrival", "norm/own")


def run(ranks, *cases):
    return run_ranks("elastic_ranks.py", ranks, *cases, timeout=100)


def agreed(ranks, *cases):
    """Return what each case says, equal on all ranks."""
    first, *others = run(ranks, *cases)
    assert all(other == first for other in others)
    return first


def test_two_ranks_have_the_weights_of_one():
    cases = ("base", "norm", "base/all_reduce", "base/arrival")
    one, two = agreed(1, *cases), agreed(2, *cases)
    assert {case for case in cases if two[case] == one[case]} == {"base", "norm"}


@pytest.mark.slow
def test_any_number_of_ranks_has_the_weights_of_one():
    one = agreed(1, *SAME, *CONTROLS)
    ranks = run(3, *SAME, "buckets", *CONTROLS)
    for rank in ranks:
        assert {case: rank[case] for case in SAME} == {case: one[case] for case in SAME}
        assert rank["buckets"] == one["base"]
        assert not any(rank[case] == one[case] for case in CONTROLS)
    assert len({rank["norm/own"] for rank in ranks}) == 3
    assert agreed(4, "base", "norm") == {case: one[case] for case in ("base", "norm")}


@pytest.mark.slow
def test_ranks_that_differ_are_named_before_the_first_step():
    cases = ("slots_differ", "parameters_differ", "one_refuses", "data_ranks_unknown")
    for rank, found in enumerate(run(3, *cases, "counters_differ")):
        assert "slots is 8 on ranks 0, 2 but 9 on rank 1" in found["slots_differ"]
        assert "parameter 'experts.2.weight' is None on ranks 0, 2 but 'torch.float32 of shape " \
            "(2, 2)' on rank 1" in found["parameters_differ"]  # fmt: skip
        own = "ValueError: fastseed.elastic.SlotGradients: slots must be in"
        others = "RuntimeError: fastseed.elastic.SlotGradients: all ranks must agree, but rank 1"
        assert found["one_refuses"].startswith(own if rank == 1 else others)
        error, seen, without_gradient = found["counters_differ"]
        assert "different values in the buffers ['seen']" in error
        assert seen == 0 and all(without_gradient)
        without_group, mesh_of_two = found["data_ranks_unknown"]
        assert (
            "group must be the process group of the 1 ranks that divide the data" in without_group
        )
        assert "group must be a process group, a mesh of one dimension" in mesh_of_two


@pytest.mark.slow
def test_buckets_are_sent_early_and_cost_what_is_documented():
    ranks = run(3, "overlap", "memory", "traffic", "subgroups")
    for found in ranks:
        assert found["subgroups"] == ranks[0]["subgroups"]
        before_the_last, sent = found["overlap"]
        assert before_the_last == sent - 2 > 3  # the rest wait for the first layer
        assert 2 < found["memory"] <= 2 + 5 / 3
    # 8 leaves of 1,020 elements, of which each goes to three owners; then three pieces of the mean
    elements, parameters = zip(*(found["traffic"] for found in ranks), strict=True)
    assert parameters == (1020,) * 3 and sum(elements) == 8 * 680 + 3 * 2 * 340
