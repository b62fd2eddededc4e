"""SlotGradients on several ranks: one digest of weights and optimizer state for any number."""

from __future__ import annotations

import pytest
from helpers.processes import run_ranks

SAME = ("base", "few", "odd", "steps")


def run(ranks, *cases):
    return run_ranks("elastic_ranks.py", ranks, *cases, timeout=100)


def agreed(ranks, *cases):
    """Return what each case says, equal on all ranks."""
    first, *others = run(ranks, *cases)
    assert all(other == first for other in others)
    return first


def test_two_ranks_have_the_weights_of_one():
    cases = ("base", "odd", "steps", "all_reduce")
    one, two = agreed(1, *cases), agreed(2, *cases)
    assert {case for case in cases if two[case] == one[case]} == {"base", "odd", "steps"}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
def test_any_number_of_ranks_has_the_weights_of_one(ranks):
    one = agreed(1, *SAME)
    assert agreed(ranks, *SAME, "buckets") == {**one, "buckets": one["base"]}


@pytest.mark.slow
def test_ranks_that_differ_are_named_before_the_first_step():
    for rank, found in enumerate(run(3, "models_differ", "one_refuses", "counters_differ")):
        errors, text = found["models_differ"], "of the tensors and modules, in order, is"
        for change, message in (
            ("slots", "slots is 3 on ranks 0, 2 but 4 on rank 1"),
            ("order", f"number 3 {text} \"parameter 'norm.weight'\" on ranks 0, 2 but"),
            ("one more", f"number 9 {text} \"buffer 'norm.running_mean'\" on ranks 0, 2 but"),
            ("weight", "parameter 'frozen' is"),  # the first one in the model's order
            ("buffer", "buffer 'norm.running_var' is"),
            ("dropout", "module 'dropout' is 'training=True, p=0.3' on ranks 0, 2 but"),
        ):
            assert "all ranks must agree, but " in errors[change] and message in errors[change]
            assert "on rank 1" in errors[change]
        own = "ValueError: fastseed.elastic.SlotGradients: slots must be in"
        others = "RuntimeError: fastseed.elastic.SlotGradients: all ranks must agree, but rank 1"
        assert found["one_refuses"].startswith(own if rank == 1 else others)
        error, seen, without_gradient = found["counters_differ"]
        assert "different values in the buffers ['seen']" in error
        assert seen == 0 and all(without_gradient)


@pytest.mark.slow
def test_buckets_are_sent_early_and_constants_never():
    ranks = run(3, "overlap", "subgroups", "constants")
    own = {0: 2, 1: 1, 2: 1}  # slots of 4
    for rank, found in enumerate(ranks):
        sent, late, table = found["constants"]
        leaf, changed = own[rank] * 9, own[rank] * 12  # with what fills up three pieces
        assert sent == [leaf, leaf + changed, leaf + changed] and table == 1000
        assert late == [2.5] * 10  # (2 + 3) / 4 in each of two steps
        assert found["subgroups"] == ranks[0]["subgroups"]
        before_the_last, sent = found["overlap"]
        assert before_the_last == sent - 2 > 3  # the rest wait for the first layer
