"""Statistics of runs that are not identical: means, variances, intervals, correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .result import Band, Curve, Floats, Interval, Paired

_SIGNIFICANCE = 0.05  # of the F test


def _scipy_stats() -> Any:
    """Return :mod:`scipy.stats`, or None without SciPy."""
    try:
        from scipy import stats  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    return stats


def common(curves: Sequence[Curve]) -> tuple[tuple[str, ...], Floats]:
    """Return the steps that all curves have, and their losses, (curves, steps)."""
    steps = curves[0].steps
    if any(curve.steps != steps for curve in curves):
        shared = set(steps).intersection(*(curve.steps for curve in curves[1:]))
        steps = tuple(step for step in steps if step in shared)
    rows = []
    for curve in curves:
        if curve.steps == steps:
            rows.append(curve.values)
        else:
            found = dict(zip(curve.steps, curve.values.tolist(), strict=True))
            rows.append(np.array([found[step] for step in steps], np.float64))
    return steps, np.stack(rows)


def band(curves: Sequence[Curve]) -> Band:
    """Return the mean and the standard deviation at each step that all curves have."""
    steps, values = common(curves)
    with np.errstate(all="ignore"):  # losses may not be finite
        mean = values.mean(axis=0)
        std = values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(steps))
    # Equal values have no spread, even if rounding changes their mean.
    same = (values == values[0]).all(axis=0)
    return Band(len(curves), steps, np.where(same, values[0], mean), np.where(same, 0.0, std))


def paired(a: str, b: str, first: Sequence[Curve], second: Sequence[Curve]) -> Paired:
    """Return the differences between the k-th curves of ``second`` and ``first``.

    The intervals are those of the paired t test (Student, Biometrika 6, 1908): for n pairs with
    mean d and standard deviation s, d ± t(n - 1) s / sqrt(n).
    """
    pairs = min(len(first), len(second))
    steps, values = common([*first[:pairs], *second[:pairs]])
    with np.errstate(all="ignore"):
        differences = values[pairs:] - values[:pairs]
        mean = differences.mean(axis=0)
        # Without a common step the difference is unknown, not 0.
        each = differences.mean(axis=1) if steps else np.full(pairs, np.nan)
        overall = float(each.mean())
        half95, half99 = _half_width(differences, 0.95), _half_width(differences, 0.99)
        correlation = _correlation(values[:pairs].mean(axis=0), values[pairs:].mean(axis=0))
        return Paired(
            a=a,
            b=b,
            pairs=pairs,
            steps=steps,
            mean=mean,
            low95=None if half95 is None else mean - half95,
            high95=None if half95 is None else mean + half95,
            low99=None if half99 is None else mean - half99,
            high99=None if half99 is None else mean + half99,
            overall=overall,
            interval95=_interval(each, 0.95),
            interval99=_interval(each, 0.99),
            correlation=correlation,
        )


def _interval(each: Floats, level: float) -> Interval | None:
    half, mean = _half_width(each[:, None], level), float(each.mean())
    return None if half is None else Interval(mean - float(half[0]), mean + float(half[0]))


def _half_width(rows: Floats, level: float) -> Floats | None:
    """Return half of the t interval of the mean over rows; None for one row or without SciPy."""
    n = len(rows)
    if n < 2 or (stats := _scipy_stats()) is None:
        return None
    same = (rows == rows[0]).all(axis=0)
    std = np.where(same, 0.0, rows.std(axis=0, ddof=1))
    return np.asarray(float(stats.t.ppf((1 + level) / 2, n - 1)) * std / np.sqrt(n), np.float64)


def _correlation(a: Floats, b: Floats) -> float | None:
    """Return Pearson's correlation; None if one is constant, too short or not finite."""
    for one in (a, b):
        if len(one) < 2 or not np.isfinite(one).all() or (one == one[0]).all():
            return None
    # Scaled, so that no square overflows or underflows.
    return float(np.corrcoef(a / np.abs(a).max(), b / np.abs(b).max())[0, 1])


def variance_ratio(seeded: Band, unseeded: Band) -> float | None:
    """Return the pooled variance of seeded over unseeded runs, at the steps that both have."""
    shared = set(seeded.steps) & set(unseeded.steps)
    pooled = []
    for one in (seeded, unseeded):
        inside = np.array([step in shared for step in one.steps], dtype=bool)
        if one.runs < 2 or not inside.any():
            return None
        with np.errstate(all="ignore"):
            pooled.append(float(np.mean(one.std[inside] ** 2)))
    if not np.isfinite(pooled).all() or pooled[1] == 0:
        return None
    return pooled[0] / pooled[1]


def is_smaller(ratio: float, seeded: int, unseeded: int) -> bool:
    """Return True if a ratio of variances is significantly below 1 (one-sided F test, 5%).

    The steps of a run are not independent, so only the runs count as degrees of freedom: the test
    is conservative. Without SciPy only a ratio of 0 is smaller.
    """
    stats = _scipy_stats()
    if ratio == 0 or stats is None:
        return ratio == 0
    return ratio < float(stats.f.ppf(_SIGNIFICANCE, seeded - 1, unseeded - 1))
