"""SlotGradients on several ranks: one digest of weights and optimizer state for any number."""

from __future__ import annotations

import pytest
from helpers.processes import run_ranks

SAME = ("base", "few", "odd", "weighted", "bfloat16", "float64", "scaled", "norm", "steps")
CONTROLS = ("base/all_reduce", "base/arrival", "norm/own", "steps/own")


def run(ranks, *cases):
    return run_ranks("elastic_ranks.py", ranks, *cases, timeout=100)


def agreed(ranks, *cases):
    """Return what each case says, equal on all ranks."""
    first, *others = run(ranks, *cases)
    assert all(other == first for other in others)
    return first


def test_two_ranks_have_the_weights_of_one():
    cases = ("base", "norm", "steps", "base/all_reduce", "base/arrival", "steps/own")
    one, two = agreed(1, *cases), agreed(2, *cases)
    assert {case for case in cases if two[case] == one[case]} == {"base", "norm", "steps"}


@pytest.mark.slow
def test_any_number_of_ranks_has_the_weights_of_one():
    one = agreed(1, *SAME, *CONTROLS)
    ranks = run(3, *SAME, "buckets", *CONTROLS)
    for rank in ranks:
        assert {case: rank[case] for case in SAME} == {case: one[case] for case in SAME}
        assert rank["buckets"] == one["base"]
        assert not any(rank[case] == one[case] for case in CONTROLS)
    assert len({rank["norm/own"] for rank in ranks}) == 3
    cases = ("base", "norm", "steps")
    assert agreed(4, *cases) == {case: one[case] for case in cases}


@pytest.mark.slow
def test_ranks_that_differ_are_named_before_the_first_step():
    cases = ("slots_differ", "parameters_differ", "threads_differ", "one_refuses")
    cases += ("order_differs", "values_differ")
    for rank, found in enumerate(run(3, *cases, "data_ranks_unknown", "counters_differ")):
        assert "slots is 8 on ranks 0, 2 but 9 on rank 1" in found["slots_differ"]
        text = "of the parameters and buffers, in order, is"
        more = (
            f"number 9 {text} 'nothing' on ranks 0, 2 but \"parameter 'experts.2.weight'\" on rank"
        )
        assert more in found["parameters_differ"]
        assert f"number 0 {text} \"parameter 'a.weight'\" on ranks" in found["order_differs"]
        weight, buffer, dropout = found["values_differ"]
        for error, name in (
            (weight, "parameter 'frozen'"),  # the first one in the model's order
            (buffer, "buffer 'norm.running_var'"),
            (dropout, "module 'dropout' is 'training=True, p=0.3'"),
        ):
            assert f"all ranks must agree, but {name}" in error and "on rank 1" in error
        threads = "threads is 1 on ranks 0, 2 but 2 on rank 1 (set OMP_NUM_THREADS"
        assert threads in found["threads_differ"]
        own = "ValueError: fastseed.elastic.SlotGradients: slots must be in"
        others = "RuntimeError: fastseed.elastic.SlotGradients: all ranks must agree, but rank 1"
        assert found["one_refuses"].startswith(own if rank == 1 else others)
        error, seen, without_gradient = found["counters_differ"]
        assert "different values in the buffers ['seen']" in error
        assert seen == 0 and all(without_gradient)
        without_group, mesh_of_two, mesh_of_one_rank = found["data_ranks_unknown"]
        assert "rank 1 failed: fastseed" in mesh_of_one_rank or rank == 1
        assert (
            "group must be the process group of the 1 ranks that divide the data" in without_group
        )
        assert "group must be a process group, a mesh of one dimension" in mesh_of_two


@pytest.mark.slow
def test_buckets_are_sent_early_and_cost_what_is_documented():
    ranks = run(3, "overlap", "memory", "traffic", "subgroups", "constants")
    own = {0: 2, 1: 1, 2: 1}  # slots of 4
    for rank, found in enumerate(ranks):
        sent, late, table = found["constants"]
        leaf, changed = own[rank] * 9, own[rank] * 12  # with what fills up three pieces
        assert sent == [leaf, leaf + changed, leaf + changed] and table == 1000
        assert late == [2.5] * 10  # (2 + 3) / 4 in each of two steps
        assert found["subgroups"] == ranks[0]["subgroups"]
        before_the_last, sent = found["overlap"]
        assert before_the_last == sent - 2 > 3  # the rest wait for the first layer
        assert 2 < found["memory"] <= 2 + 5 / 3
    # 8 leaves of 1,020 elements, of which each goes to three owners; then three pieces of the mean
    elements, parameters = zip(*(found["traffic"] for found in ranks), strict=True)
    assert parameters == (1020,) * 3 and sum(elements) == 8 * 680 + 3 * 2 * 340
