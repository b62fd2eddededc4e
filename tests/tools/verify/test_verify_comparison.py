"""From losses to a verdict, on made-up runs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.made_reports import all_runs, judged, line, replaced, run
from hypothesis import given
from hypothesis import strategies as st

from fastseed.tools.verify import comparison
from fastseed.tools.verify.result import Check


def named(found) -> dict[str, Check]:
    return {check.name: check for check in found.checks}


# ---------------------------------------------------------------- the verdict


def test_identical_runs():
    found = judged(all_runs())
    assert found.verdict == "bit-identical" and found.notes == ()
    assert [one.passed for one in found.checks] == [True, True, True, True, None]
    assert found.checks[0].message == "1 pair of runs bit-identical"
    assert found.checks[1].message == "2 pairs of runs bit-identical"
    assert found.checks[3].message == "3 pairs of runs differ"


def test_a_single_run_of_each_cannot_repeat():
    found = judged(all_runs(1))
    assert found.verdict == "bit-identical"
    assert found.checks[0].passed is None
    assert found.checks[0].message == "not checked: it needs two runs"


def test_one_bit_in_the_last_step_is_a_difference():
    last = math.nextafter(1, 2)
    found = judged(replaced(all_runs(3), "uninterrupted-2", line([1, 1, 1, last])))
    assert found.verdict == "not reproducible"
    check = named(found)["repeat"]
    assert check.message == (
        "1 of 2 pairs of runs differ: first difference between uninterrupted-0 and uninterrupted-2 "
        "at step 3: 1.0 and 1.0000000000000002 (1 of 4 steps differ)"
    )
    assert check.message in found.summary
    assert named(found)["truncate"].passed and not named(found)["resume"].passed


@pytest.mark.parametrize(
    ("name", "losses", "check", "step", "values"),
    [
        ("uninterrupted-1", line([1, 1, 1]), "repeat", "3", "1.0 and no loss"),
        ("uninterrupted-1", line([1, 1, 1, 1, 1]), "repeat", "4", "no loss and 1.0"),
        ("truncated-1", line([1, 2]), "truncate", "1", "2.0 and 1.0"),
        ("truncated-1", {**line([1, 1]), "x": 1}, "truncate", "x", "1.0 and no loss"),
        ("resumed-1", line([1], 2), "resume", "3", "no loss and 1.0"),
        ("resumed-1", line([1], 3), "resume", "2", "no loss and 1.0"),
        ("resumed-1", line([1, 1, 1], 2), "resume", "4", "1.0 and no loss"),
        ("resumed-0", line([1, 1, 1, 2]), "resume", "3", "2.0 and 1.0"),
    ],
)
def test_missing_and_additional_steps(name, losses, check, step, values):
    found = judged(replaced(all_runs(), name, losses))
    assert found.verdict not in ("bit-identical", "inconclusive")
    failed = named(found)[check]
    assert failed.passed is False
    assert f" at step {step}: {values} (" in failed.message


def test_a_truncated_run_may_have_fewer_steps():
    assert judged(replaced(all_runs(), "truncated-0", line([1]))).checks[1].passed
    found = judged(replaced(all_runs(), "truncated-0", {"x": 1, "y": 1}))
    assert "truncated-0 and uninterrupted-0 have no step in common" in found.checks[1].message


def test_the_last_value_of_a_step_counts_in_resumed_runs():
    runs = replaced(all_runs(), "truncated-0", line([1, 1, 7]))
    assert judged(runs).checks[2].passed and not judged(runs).checks[1].passed


def test_recordings_that_differ():
    tensors = Check("tensors", "", False, "uninterrupted-0 and uninterrupted-1: weight")
    found = judged(all_runs(), tensors)
    assert (found.verdict, found.summary) == (
        "not reproducible",
        "losses are identical, but not recorded tensors: uninterrupted-0 and uninterrupted-1: "
        "weight",
    )


def test_equal_unseeded_runs_are_inconclusive():
    runs = all_runs()
    for k in (0, 1):
        runs = replaced(runs, f"unseeded-{k}", line([1, 1, 1, 1]))
    found = judged(runs)
    assert found.verdict == "inconclusive"
    check = named(found)["baseline"]
    assert check.passed is False
    assert check.message == "3 of 3 pairs of runs identical: unseeded-0 and unseeded-1"


def test_some_equal_unseeded_runs_are_inconclusive():
    found = judged(replaced(all_runs(), "unseeded-1", line([1, 1, 1, 1])))
    check = named(found)["baseline"]
    assert found.verdict == "inconclusive" and check.passed is False
    assert (
        check.message
        == "1 of 3 pairs of runs identical: unseeded-1 and uninterrupted-1"
        in found.summary
    )


def test_without_the_baseline():
    found = judged(all_runs(unseeded=False))
    assert found.verdict == "bit-identical"
    assert named(found)["baseline"].passed is None


def test_notes_about_logs():
    few = replaced(all_runs(), "uninterrupted-0", line([1, 1, 1, 1]), digits=4)
    few = [replace(r, curve=replace(r.curve, digits=4, notes=("cut off",))) for r in few]
    notes = judged(few).notes
    assert notes[0].startswith("losses have at most 4 significant digits")
    assert notes[1:] == ("uninterrupted-0: cut off",)


# ---------------------------------------------------------------- comparing two


def differs(a: dict[str, float], b: dict[str, float], **how):
    return comparison.compare(run("uninterrupted", 0, a), run("uninterrupted", 1, b), **how)


def test_zeros_and_nans():
    def equal(a, b):
        return differs({"0": a}, {"0": b}) is None

    other = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)[0]
    assert equal(math.nan, float(other)) and equal(math.inf, math.inf)
    assert not equal(-0.0, 0.0) and not equal(math.nan, 1.0) and not equal(math.inf, -math.inf)


VALUES = st.sampled_from([0.0, -0.0, 1.0, math.nextafter(1, 2), math.inf, math.nan])
CURVES = st.dictionaries(st.sampled_from("abcdef"), VALUES, max_size=6)


def same(a: float, b: float) -> bool:
    return np.float64(a).tobytes() == np.float64(b).tobytes()


@given(CURVES, CURVES)
def test_compare_returns_the_first_step_that_differs(a, b):
    found = differs(a, b)
    assert (found is None) == (differs(b, a) is None)
    common = a.keys() & b.keys()
    if not common:
        assert found.endswith(" have no step in common")
        return
    wrong = [s for s in b if s not in a or not same(a[s], b[s])] or [s for s in a if s not in b]
    if not wrong:
        assert found is None
        return
    values = (repr(c[wrong[0]]) if wrong[0] in c else "no loss" for c in (a, b))
    assert f" at step {wrong[0]}: {' and '.join(values)} (" in found
    differing = sum(not same(a[s], b[s]) for s in common)
    assert found.endswith(f" ({differing} of {len(common)} steps differ)")


@given(CURVES, CURVES)
def test_a_prefix_may_lack_steps_but_not_differ(a, b):
    found, full = differs(a, b, prefix=True), differs(a, b)
    if full is None:
        assert found is None
    elif found is None:
        assert a.keys() < b.keys() and all(same(a[s], b[s]) for s in a)
