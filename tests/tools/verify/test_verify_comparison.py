"""From losses to a verdict, on made-up runs."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastseed.tools.verify import comparison
from fastseed.tools.verify.result import Check, Curve, Run


def run(experiment: str, number: int, losses: dict, **more) -> Run:
    steps = np.array([*losses], dtype=None if losses else np.int64)
    curve = Curve(steps, np.array([*losses.values()], dtype=np.float64), **more)
    return Run(f"{experiment}-{number}", experiment, number, ("x",), 1.0, "no-folder", curve)


def line(values, begin: int = 0) -> dict[str, float]:
    return {begin + i: value for i, value in enumerate(values)}


def all_runs(n: int = 2, *, unseeded: bool = True, noise: float = 0.0, shift: float = 0.0):
    """``n`` of each: of 4 steps; seeded ones differ by ``noise``, resumed ones by ``shift``."""
    samples = np.random.Generator(np.random.Philox(3)).normal(size=(2, n, 4))
    found = []
    for k in range(n):
        values = [1 + noise * noisy for noisy in samples[0, k]]
        found += [
            run("uninterrupted", k, line(values)),
            run("truncated", k, line(values[:2])),
            run("resumed", k, line([value + shift for value in values[2:]], 2)),
        ]
        if unseeded:
            found.append(run("unseeded", k, line(2 + samples[1, k])))
    return found


def replaced(runs, name: str, losses: dict[str, float], **more):
    return [run(r.experiment, r.number, losses, **more) if r.name == name else r for r in runs]


def judged(runs, tensors: Check | None = None) -> SimpleNamespace:
    runs = comparison.continue_steps(runs)
    checks = comparison.check_all(runs, comparison.compare_recordings(runs))
    checks = checks if tensors is None else (*checks[:4], tensors)
    names = dict.fromkeys(one.experiment for one in runs)
    bands = {name: comparison.band([r for r in runs if r.experiment == name]) for name in names}
    verdict, summary = comparison.conclude(checks)
    notes = tuple(comparison.notes_about(runs))
    return SimpleNamespace(
        verdict=verdict, summary=summary, checks=checks, bands=bands, notes=notes
    )


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
    assert found.bands.keys() >= {"uninterrupted", "unseeded"}


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
    (one,) = check.differences
    assert (one.a, one.b, one.step, one.value_a, one.value_b) == (
        "uninterrupted-0",
        "uninterrupted-2",
        "3",
        1,
        last,
    )
    assert named(found)["truncate"].passed and not named(found)["resume"].passed


@pytest.mark.parametrize(
    ("name", "losses", "check", "step", "values"),
    [
        ("uninterrupted-1", line([1, 1, 1]), "repeat", "3", (1, None)),
        ("uninterrupted-1", line([1, 1, 1, 1, 1]), "repeat", "4", (None, 1)),
        ("truncated-1", line([1, 2]), "truncate", "1", (2, 1)),
        ("truncated-1", {**line([1, 1]), "x": 1}, "truncate", "x", (1, None)),
        ("resumed-1", line([1], 2), "resume", "3", (None, 1)),
        ("resumed-1", line([1], 3), "resume", "2", (None, 1)),
        ("resumed-1", line([1, 1, 1], 2), "resume", "4", (1, None)),
        ("resumed-0", line([1, 1, 1, 2]), "resume", "3", (2, 1)),
    ],
)
def test_missing_and_additional_steps(name, losses, check, step, values):
    found = judged(replaced(all_runs(), name, losses))
    assert found.verdict not in ("bit-identical", "inconclusive")
    failed = named(found)[check]
    assert failed.passed is False
    (one,) = failed.differences
    assert (one.step, one.value_a, one.value_b) == (step, *values)
    assert "no loss" in failed.message or None not in values


def test_a_truncated_run_may_have_fewer_steps():
    assert judged(replaced(all_runs(), "truncated-0", line([1]))).checks[1].passed
    found = judged(replaced(all_runs(), "truncated-0", {"x": 1, "y": 1}))
    assert "truncated-0 and uninterrupted-0 have no step in common" in found.checks[1].message
    assert found.checks[1].differences[0].compared == 0


def test_the_last_value_of_a_step_counts_in_resumed_runs():
    runs = replaced(all_runs(), "truncated-0", line([1, 1, 7]))
    assert judged(runs).checks[2].passed and not judged(runs).checks[1].passed


def test_steps_without_names_continue():
    runs = replaced(all_runs(), "resumed-0", line([1, 1]), labelled=False)
    assert comparison.continue_steps(runs)[2].curve.steps.tolist() == [2, 3]
    assert judged(runs).verdict == "bit-identical"


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


def test_bands():
    rows = ([0.1, 5, math.inf, math.nan], [0.1, 7, math.inf, 1], [0.1, 9, math.inf, 1])
    runs = [run("uninterrupted", k, line(row)) for k, row in enumerate(rows)]
    found = comparison.band(runs)
    assert found.runs == 3 and found.mean[:3].tolist() == [0.1, 7, math.inf]
    assert found.std[:3].tolist() == [0, 2, 0] and math.isnan(found.mean[3])
    mixed = [run("a", 0, {"x": 1, "y": 2, "1": 3}), run("a", 1, {1: 5}), run("a", 2, {"1": 4})]
    assert comparison.band(mixed).steps.tolist() == ["1"]
    assert comparison.band(mixed).mean.tolist() == [4]
    assert comparison.band(runs[:1]).std.tolist() == [0, 0, 0, 0]


def test_notes_about_logs():
    few = replaced(all_runs(), "uninterrupted-0", line([1, 1, 1, 1]), digits=4)
    few = [replace(r, curve=replace(r.curve, digits=4, notes=("cut off",))) for r in few]
    notes = judged(few).notes
    assert notes[0].startswith("losses have at most 4 significant digits")
    assert notes[1:] == ("uninterrupted-0: cut off",)
    inf = judged(replaced(all_runs(), "uninterrupted-0", line([1, math.inf, 1, 1])))
    assert "some losses are not finite, nor are the statistics of their steps" in inf.notes


def test_a_hundred_differences_are_kept():
    runs = [run("uninterrupted", k, line([k, 1, 1, 1])) for k in range(150)]
    runs += [run("truncated", k, line([k, 1])) for k in range(150)]
    runs += [run("resumed", k, line([1, 1], 2)) for k in range(150)]
    check = judged(runs).checks[0]
    assert len(check.differences) == 100 and check.pairs == 149
    assert check.message.startswith("149 of 149 pairs of runs differ: first difference between ")


# ---------------------------------------------------------------- comparing two


def differs(a: dict[str, float], b: dict[str, float], **how):
    return comparison.compare(run("uninterrupted", 0, a), run("uninterrupted", 1, b), **how)


def test_zeros_and_nans():
    assert differs({"0": -0.0}, {"0": 0.0}).step == "0"
    other = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)[0]
    assert differs({"0": math.nan}, {"0": float(other)}) is None
    assert differs({"0": math.nan}, {"0": 1.0}).step == "0"
    assert differs({"0": math.inf}, {"0": math.inf}) is None
    assert differs({"0": math.inf}, {"0": -math.inf}).step == "0"


VALUES = st.sampled_from([0.0, -0.0, 1.0, math.nextafter(1, 2), math.inf, math.nan])
CURVES = st.dictionaries(st.sampled_from("abcdef"), VALUES, max_size=6)


def same(a: float, b: float) -> bool:
    return np.float64(a).tobytes() == np.float64(b).tobytes()


@given(CURVES, CURVES)
def test_compare_is_symmetric(a, b):
    there, back = differs(a, b), differs(b, a)
    assert (there is None) == (back is None)
    if there is not None:
        assert (there.differing, there.compared) == (back.differing, back.compared)
        assert there.compared == len(a.keys() & b.keys())
        assert there.differing == sum(not same(a[s], b[s]) for s in a.keys() & b.keys())


@given(CURVES)
def test_a_curve_is_equal_to_itself(a):
    found = differs(a, a)
    assert found is None if a else found.step is None


@given(CURVES, CURVES)
def test_compare_returns_the_first_step_that_differs(a, b):
    found = differs(a, b)
    if not a.keys() & b.keys():
        assert found is not None and found.step is None
        return
    wrong = [s for s in b if s not in a or not same(a[s], b[s])] or [s for s in a if s not in b]
    if not wrong:
        assert found is None
    else:
        assert found.step == wrong[0]
        assert found.value_a is (None if wrong[0] not in a else found.value_a)
        assert (found.value_b is None) == (wrong[0] not in b)


@given(CURVES, CURVES)
def test_a_prefix_may_lack_steps_but_not_differ(a, b):
    found, full = differs(a, b, prefix=True), differs(a, b)
    if full is None:
        assert found is None
    elif found is None:
        assert a.keys() < b.keys() and all(same(a[s], b[s]) for s in a)
