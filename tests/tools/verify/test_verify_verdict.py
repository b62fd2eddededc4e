"""From losses to a verdict, by runs that nobody ran."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastseed.tools.verify import statistics, verdict
from fastseed.tools.verify.result import Check, Curve, Run

UNASKED = Check("tensors", "recorded tensors are equal", None, True, "not asked")


def run(experiment: str, number: int, losses: dict[str, float], **more) -> Run:
    curve = Curve(tuple(losses), np.array([*losses.values()], dtype=np.float64), **more)
    return Run(f"{experiment}-{number}", experiment, number, ("x",), 1.0, "f", curve)


def line(values, begin: int = 0) -> dict[str, float]:
    return {str(begin + i): value for i, value in enumerate(values)}


def all_runs(n: int = 2, *, unseeded: bool = True, noise: float = 0.0, shift: float = 0.0):
    """``n`` of each: of 4 steps; seeded ones differ by ``noise``, resumed ones by ``shift``."""
    draws = np.random.Generator(np.random.Philox(3)).normal(size=(2, n, 4))
    found = []
    for k in range(n):
        values = [1 + noise * draw for draw in draws[0, k]]
        found += [
            run("whole", k, line(values)),
            run("half", k, line(values[:2])),
            run("resumed", k, line([value + shift for value in values[2:]], 2)),
        ]
        if unseeded:
            found.append(run("unseeded", k, line(2 + draws[1, k])))
    return found


def replaced(runs, name: str, losses: dict[str, float], **more):
    return [run(r.experiment, r.number, losses, **more) if r.name == name else r for r in runs]


def judged(runs, tensors: Check = UNASKED) -> verdict.Verdict:
    return verdict.judge(verdict.placed(runs), tensors)


def named(found: verdict.Verdict) -> dict[str, Check]:
    return {check.name: check for check in found.checks}


# ---------------------------------------------------------------- the verdict


def test_identical_runs():
    found = judged(all_runs())
    assert found.verdict == "bit-identical" and found.notes == ()
    assert [one.passed for one in found.checks] == [True, True, True, True, None]
    assert found.checks[0].says == "1 pair of runs equal to the last bit"
    assert found.checks[1].says == "2 pairs of runs equal to the last bit"
    assert found.checks[3].says == "3 pairs of runs differ"
    assert found.variance_ratio == 0 and found.bands.keys() >= {"whole", "unseeded"}
    assert [(one.a, one.b) for one in found.paired] == [("whole", "resumed"), ("whole", "unseeded")]


def test_a_single_run_of_each_cannot_repeat():
    found = judged(all_runs(1))
    assert found.verdict == "bit-identical"
    assert found.checks[0].passed is None
    assert found.checks[0].says == "not asked: that takes two runs"


def test_one_bit_in_the_last_step_is_a_difference():
    last = math.nextafter(1, 2)
    found = judged(replaced(all_runs(3), "whole-2", line([1, 1, 1, last])))
    assert found.verdict == "variance reduced"  # all but to nothing
    check = named(found)["repeat"]
    assert check.says == (
        "1 of 2 pairs of runs differ: whole-0 and whole-2 part at step 3: 1.0 and "
        "1.0000000000000002 (1 of 4 steps differ)"
    )
    assert check.says in found.says
    (one,) = check.differences
    assert (one.a, one.b, one.step, one.value_a, one.value_b) == (
        "whole-0",
        "whole-2",
        "3",
        1,
        last,
    )
    assert named(found)["prefix"].passed and not named(found)["resume"].passed


@pytest.mark.parametrize(
    ("name", "losses", "check", "step", "values"),
    [
        ("whole-1", line([1, 1, 1]), "repeat", "3", (1, None)),
        ("whole-1", line([1, 1, 1, 1, 1]), "repeat", "4", (None, 1)),
        ("half-1", line([1, 2]), "prefix", "1", (2, 1)),
        ("half-1", {**line([1, 1]), "x": 1}, "prefix", "x", (1, None)),
        ("resumed-1", line([1], 2), "resume", "3", (None, 1)),
        ("resumed-1", line([1], 3), "resume", "2", (None, 1)),
        ("resumed-1", line([1, 1, 1], 2), "resume", "4", (1, None)),
        ("resumed-0", line([1, 1, 1, 2]), "resume", "3", (2, 1)),
    ],
)
def test_steps_that_are_missing_or_too_many(name, losses, check, step, values):
    found = judged(replaced(all_runs(), name, losses))
    assert found.verdict not in ("bit-identical", "no control")
    failed = named(found)[check]
    assert failed.passed is False and failed.identical is False
    (one,) = failed.differences
    assert (one.step, one.value_a, one.value_b) == (step, *values)


def test_a_half_run_may_have_written_less_but_not_nothing_in_common():
    assert judged(replaced(all_runs(), "half-0", line([1]))).checks[1].passed
    found = judged(replaced(all_runs(), "half-0", {"x": 1, "y": 1}))
    assert "half-0 and whole-0 have no step in common" in found.checks[1].says
    assert found.checks[1].differences[0].compared == 0


def test_resumed_runs_that_write_steps_again_are_taken_at_their_last_word():
    runs = replaced(all_runs(), "half-0", line([1, 1, 7]))
    assert judged(runs).checks[2].passed and not judged(runs).checks[1].passed


def test_steps_without_names_are_counted_on():
    runs = replaced(all_runs(), "resumed-0", line([1, 1]), labelled=False)
    assert verdict.placed(runs)[2].curve.steps == ("2", "3")
    assert judged(runs).verdict == "bit-identical"


def test_recordings_that_differ_are_no_proof():
    tensors = Check("tensors", "", False, False, "whole-0 and whole-1: weight")
    found = judged(all_runs(), tensors)
    assert (found.verdict, found.says) == (
        "not reproducible",
        "losses are equal to the last bit, but not what was recorded: whole-0 and whole-1: weight",
    )


def test_unseeded_runs_that_are_equal_are_no_control():
    runs = all_runs()
    for k in (0, 1):
        runs = replaced(runs, f"unseeded-{k}", line([1, 1, 1, 1]))
    found = judged(runs)
    assert found.verdict == "no control" and found.verdict not in verdict.REQUIRED["variance"]
    check = named(found)["control"]
    assert check.passed is False and check.identical and not check.differences
    assert check.says == "3 of 3 pairs of runs equal: unseeded-0 and unseeded-1"


def test_some_unseeded_runs_that_are_equal_are_no_control_either():
    found = judged(replaced(all_runs(), "unseeded-1", line([1, 1, 1, 1])))
    check = named(found)["control"]
    assert found.verdict == "no control" and check.passed is False and not check.identical
    assert check.says == "1 of 3 pairs of runs equal: unseeded-1 and whole-1" in found.says


def test_no_control_was_asked_for():
    found = judged(all_runs(unseeded=False))
    assert found.verdict == "bit-identical" and found.variance_ratio is None
    assert named(found)["control"].passed is None and len(found.paired) == 1


def test_a_variance_that_a_seed_reduces():
    found = judged(all_runs(6, noise=1e-3))
    assert found.verdict == "variance reduced" and found.verdict in verdict.REQUIRED["variance"]
    assert found.verdict not in verdict.REQUIRED["bit-identical"]
    assert 0 < found.variance_ratio < 1e-4 and f"{found.variance_ratio:.3g} of" in found.says


def test_a_variance_as_large_as_without_a_seed_is_not_reduced():
    assert judged(all_runs(6, noise=1)).verdict == "not reproducible"
    assert judged(all_runs(2, noise=0.1)).verdict == "not reproducible"  # two tell too little
    assert judged(all_runs(1, shift=1e-3)).verdict == "not reproducible"


def test_a_resume_that_changes_something_is_not_reduced_variance():
    runs = all_runs(6, noise=1e-6, shift=1e-2)
    found = judged(runs)
    assert 0 < found.variance_ratio < 1e-6 and 0 not in found.paired[0].interval99
    assert found.verdict == "not reproducible"


@pytest.mark.parametrize("lacks", ["some", "all"])
def test_resumed_runs_without_the_steps_prove_no_reduced_variance(lacks):
    """What they have in common may be as near as one likes."""
    runs = all_runs(6, noise=1e-3)
    for k in range(6):
        if lacks == "some":
            runs = replaced(runs, f"resumed-{k}", line([1], 2))
        else:
            runs = replaced(runs, f"half-{k}", {"a": 1.0})
            runs = replaced(runs, f"resumed-{k}", {"b": 1.0})
    assert judged(runs).verdict == "not reproducible"


def test_notes_about_logs():
    few = replaced(all_runs(), "whole-0", line([1, 1, 1, 1]), digits=4)
    few = [run(r.experiment, r.number, dict(zip(r.curve.steps, r.curve.values, strict=True)),
               digits=4, notes=("cut off",)) for r in few]  # fmt: skip
    notes = judged(few).notes
    assert notes[0].startswith("losses are written with 4 significant digits at most")
    assert notes[1:] == ("whole-0: cut off",)
    inf = judged(replaced(all_runs(), "whole-0", line([1, math.inf, 1, 1])))
    assert "some losses are not finite: statistics of those steps are not either" in inf.notes
    other = judged(replaced(all_runs(), "whole-0", line([1, 1, 1])))
    assert "whole runs wrote other steps than one another" in other.notes


def test_without_scipy_a_note_names_the_extra(monkeypatch):
    monkeypatch.setattr(statistics, "_half_width", lambda *_: None)  # what it is without SciPy
    monkeypatch.setattr(statistics, "is_smaller", lambda ratio, *_: ratio == 0)
    found = judged(all_runs(6, noise=1e-3))
    assert found.verdict == "not reproducible"
    assert found.notes == (
        "without SciPy there are no Student-t intervals and no F test, so no variance can be said "
        'to be reduced: pip install "fastseed[report]"',
    )
    assert judged(all_runs(1)).notes == ()  # of one run there are none anyway


def test_many_differences_are_kept_up_to_a_hundred():
    runs = [run("whole", k, line([k, 1, 1, 1])) for k in range(150)]
    runs += [run("half", k, line([k, 1])) for k in range(150)]
    runs += [run("resumed", k, line([1, 1], 2)) for k in range(150)]
    check = judged(runs).checks[0]
    assert len(check.differences) == 100 and check.pairs == 149
    assert check.says.startswith("149 of 149 pairs of runs differ: whole-0 and whole-1 part at")


# ---------------------------------------------------------------- comparing two


def differs(a: dict[str, float], b: dict[str, float], **how):
    return verdict.compare(run("whole", 0, a), run("whole", 1, b), **how)


def test_signs_of_zero_differ_and_nan_is_nan():
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
def test_compare_finds_something_either_way_round(a, b):
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
def test_compare_finds_the_first_step_that_differs(a, b):
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
def test_a_part_may_lack_steps_and_nothing_else(a, b):
    found, full = differs(a, b, part=True), differs(a, b)
    if full is None:
        assert found is None
    elif found is None:
        assert a.keys() < b.keys() and all(same(a[s], b[s]) for s in a)
