"""Bands, intervals, correlations and spreads: against SciPy, and by hand."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from fastseed.tools.verify import statistics
from fastseed.tools.verify.result import Curve

stats = pytest.importorskip("scipy.stats")


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def curves(rows, names=None) -> list[Curve]:
    rows = np.asarray(rows, dtype=np.float64)
    steps = names or tuple(map(str, range(rows.shape[1])))
    return [Curve(tuple(steps), row) for row in rows]


def noise(runs: int, steps: int, seed: int, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.Generator(np.random.Philox(seed)).normal(size=(runs, steps))


def test_common_keeps_the_order_of_the_first():
    a, b = Curve(("x", "y", "z"), np.array([1.0, 2, 3])), Curve(("z", "w", "x"), np.arange(3.0))
    steps, values = statistics.common([a, b])
    assert steps == ("x", "z") and values.tolist() == [[1, 3], [2, 0]]
    steps, values = statistics.common([a, Curve(("q",), np.zeros(1))])
    assert steps == () and values.shape == (2, 0)


def test_a_band_by_hand():
    found = statistics.band(curves([[1, 5, 2], [3, 5, 4], [5, 5, 9]]))
    assert (found.runs, found.steps) == (3, ("0", "1", "2"))
    assert found.mean.tolist() == [3, 5, 5]
    np.testing.assert_allclose(found.std, [2, 0, math.sqrt(13)])


def test_a_band_of_one_run_and_of_equal_ones():
    one = statistics.band(curves([[0.1, 0.7]]))
    assert one.mean.tolist() == [0.1, 0.7] and one.std.tolist() == [0, 0]
    same = statistics.band(curves([[0.1, 0.7]] * 3))  # 3 * 0.1 / 3 is not 0.1
    assert same.mean.tolist() == [0.1, 0.7] and same.std.tolist() == [0, 0]


def test_a_band_of_losses_that_are_not_finite():
    inf, nan = math.inf, math.nan
    found = statistics.band(curves([[1, nan, inf, inf, 1e308], [3, 1, inf, -inf, -1e308]]))
    assert found.mean[0] == 2 and found.mean[2] == inf and found.std[2] == 0
    assert np.isnan(found.mean[[1, 3]]).all() and np.isnan(found.std[[1, 3]]).all()


@pytest.mark.parametrize(("pairs", "steps"), [(2, 1), (3, 7), (8, 40)])
def test_intervals_are_those_of_the_paired_t_test(pairs, steps):
    a, b = noise(pairs, steps, 1), noise(pairs, steps, 2, 3) + 0.5
    found = statistics.paired("uninterrupted", "resumed", curves(a), curves(b))
    assert (found.a, found.b, found.pairs, len(found.steps)) == (
        "uninterrupted",
        "resumed",
        pairs,
        steps,
    )
    for level, low, high, all_steps in (
        (0.95, found.low95, found.high95, found.interval95),
        (0.99, found.low99, found.high99, found.interval99),
    ):
        expected = stats.ttest_rel(b, a, axis=0).confidence_interval(level)
        np.testing.assert_allclose(low, expected.low, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(high, expected.high, rtol=1e-10, atol=1e-12)
        expected = stats.ttest_rel(b.mean(axis=1), a.mean(axis=1)).confidence_interval(level)
        np.testing.assert_allclose((all_steps.low, all_steps.high), tuple(expected), rtol=1e-9)
    np.testing.assert_allclose(found.mean, (b - a).mean(axis=0))
    assert found.overall == pytest.approx(float((b - a).mean()))
    if steps > 1:
        expected = stats.pearsonr(a.mean(axis=0), b.mean(axis=0)).statistic
        assert found.correlation == pytest.approx(float(expected), abs=1e-12)
    else:
        assert found.correlation is None


def test_an_interval_by_hand():
    """Differences 1 and 3: mean 2, s = sqrt(2), s / sqrt(2) = 1, and t(1) is 12.706 and 63.657."""
    found = statistics.paired("uninterrupted", "resumed", curves([[0], [0]]), curves([[1], [3]]))
    assert found.overall == 2
    assert found.interval95.low == pytest.approx(2 - 12.7062, abs=1e-3)
    assert found.interval99.high == pytest.approx(2 + 63.6567, abs=1e-3)
    assert 0 in found.interval95 and 15 not in found.interval95 and 15 in found.interval99


def test_a_single_pair_has_no_interval_and_unpaired_runs_are_left_out():
    found = statistics.paired("a", "b", curves([[1, 2]]), curves([[1.5, 3], [9, 9]]))
    assert found.pairs == 1 and found.overall == 0.75 and found.mean.tolist() == [0.5, 1]
    assert found.interval95 is found.interval99 is found.low95 is found.high99 is None
    assert found.correlation == pytest.approx(1)


def test_equal_curves_differ_by_zero():
    found = statistics.paired("a", "b", curves([[0.1, 0.7]] * 3), curves([[0.1, 0.7]] * 3))
    assert (found.overall, found.interval95.low, found.interval95.high) == (0, 0, 0)
    assert found.low99.tolist() == found.high99.tolist() == [0, 0]


def test_without_a_common_step_the_difference_is_unknown():
    found = statistics.paired("a", "b", curves([[1.0]] * 2, ["x"]), curves([[1.0]] * 2, ["y"]))
    assert found.steps == () and math.isnan(found.overall) and found.correlation is None
    assert 0.0 not in found.interval95 and 0.0 not in found.interval99


def test_differences_that_are_not_finite():
    inf, nan = math.inf, math.nan
    rows = [[1, nan, inf], [2, 3, 4]], [[1, 1, inf], [2, 3, -inf]]
    found = statistics.paired("a", "b", *map(curves, rows))
    assert found.mean[0] == 0 and np.isnan(found.mean[1]) and found.correlation is None
    assert math.isnan(found.overall) and 0.0 not in found.interval99
    both = statistics.paired("a", "b", curves([[inf], [-inf]]), curves([[0.0], [0.0]]))
    assert math.isnan(both.overall) and both.correlation is None


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200, 1e-310, -1e306])
def test_a_correlation_of_any_size(scale):
    a = np.array([1.0, 2, 4, 3, 7])
    b = np.array([2.0, 1, 5, 4, 9])
    expected = float(stats.pearsonr(a, b).statistic) * math.copysign(1, scale)
    found = statistics.paired("a", "b", curves([a * scale]), curves([b])).correlation
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e-300, 1e300, -7.3])
def test_a_constant_curve_has_no_correlation(constant):
    """Less its mean 0.1, 0.1, 0.1 is -1.4e-17 thrice, by rounding."""
    flat, rest = curves([[constant] * 3] * 2), curves([[1, 2, 4]] * 2)
    assert statistics.paired("a", "b", flat, rest).correlation is None
    assert statistics.paired("a", "b", rest, flat).correlation is None


def ratio(a, b) -> float | None:
    return statistics.variance_ratio(statistics.band(a), statistics.band(b))


def test_the_ratio_of_variances_by_hand():
    # Variances 2 and 0, pooled 1; and 8 and 2, pooled 5.
    assert ratio(curves([[1, 1], [3, 1]]), curves([[0, 0], [4, 2]])) == pytest.approx(0.2)
    assert ratio(curves([[1, 1]] * 2), curves([[0, 0], [4, 2]])) == 0


def test_cases_without_a_ratio():
    some = curves([[1, 1], [3, 1]])
    assert ratio(some, curves([[1, 1]] * 2)) is None  # the other one does not vary
    assert ratio(some, some[:1]) is None and ratio(some[:1], some) is None
    assert ratio(some, curves([[1, 2], [3, 4]], ["p", "q"])) is None
    assert ratio(some, curves([[math.nan, 2], [3, 4]])) is None
    assert ratio(some, curves([[1e300, 2], [-1e300, 4]])) is None


def test_the_ratio_is_over_steps_that_both_have():
    a, b = curves([[1, 9], [3, 0]], ["x", "y"]), curves([[0, 5], [4, 6]], ["x", "z"])
    assert ratio(a, b) == pytest.approx(2 / 8)


def test_a_significantly_smaller_variance():
    limit = 1 / float(stats.f.ppf(0.95, 7, 7))  # the lower 5% are the upper 5%, turned round
    assert statistics.is_smaller(0.99 * limit, 8, 8) and not statistics.is_smaller(
        1.01 * limit, 8, 8
    )
    assert not statistics.is_smaller(0.99 * limit, 3, 3)
    assert statistics.is_smaller(0.0, 1, 1)


def test_equal_variances_seldom_differ_significantly():
    """One step, 2000 times: 5% of them, give or take 4 standard errors."""
    samples = noise(16, 2000, 5)
    a, b = samples[:8].var(axis=0, ddof=1), samples[8:].var(axis=0, ddof=1)
    share = np.mean([statistics.is_smaller(float(one), 8, 8) for one in a / b])
    assert abs(share - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_without_scipy_there_are_means_only(monkeypatch):
    monkeypatch.setattr(statistics, "_scipy_stats", lambda: None)
    a, b = curves(noise(3, 4, 1)), curves(noise(3, 4, 2))
    found = statistics.paired("a", "b", a, b)
    assert found.low95 is found.high95 is found.low99 is found.high99 is None
    assert found.interval95 is found.interval99 is None
    assert found.correlation is not None and math.isfinite(found.overall)
    assert statistics.is_smaller(0.0, 3, 3) and not statistics.is_smaller(1e-9, 3, 3)
