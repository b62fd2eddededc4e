"""What runs that are not equal have in common: means, spreads, intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .result import Band, Curve, Floats, Interval, Paired

_SMALLEST = 0.05  # of the F test: how often equal spreads would be told apart


def common(curves: Sequence[Curve]) -> tuple[tuple[str, ...], Floats]:
    """The steps that all curves have, and their (runs, steps) losses."""
    shared = set(curves[0].steps).intersection(*(curve.steps for curve in curves[1:]))
    steps = tuple(step for step in curves[0].steps if step in shared)
    rows = []
    for curve in curves:
        if curve.steps == steps:
            rows.append(curve.values)
        else:
            at = dict(zip(curve.steps, curve.values, strict=True))
            rows.append(np.array([at[step] for step in steps], dtype=np.float64))
    return steps, np.stack(rows)


def band(curves: Sequence[Curve]) -> Band:
    """Mean and standard deviation of each step that all curves have."""
    steps, values = common(curves)
    with np.errstate(all="ignore"):  # of losses that are not finite nothing is finite
        mean = values.mean(axis=0)
        std = values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(steps))
    # Equal runs spread by nothing, whatever rounding makes of their mean.
    same = (values == values[0]).all(axis=0)
    return Band(len(curves), steps, np.where(same, values[0], mean), np.where(same, 0.0, std))


def paired(a: str, b: str, first: Sequence[Curve], second: Sequence[Curve]) -> Paired:
    """Student-t intervals of what the k-th of ``second`` has more than the k-th of ``first``.

    The intervals are those of the paired t test (Student, Biometrika 6, 1908): for n pairs with
    mean d and standard deviation s, d ± t(n - 1) s / sqrt(n).
    """
    pairs = min(len(first), len(second))
    steps, values = common([*first[:pairs], *second[:pairs]])
    with np.errstate(all="ignore"):
        differences = values[pairs:] - values[:pairs]
        each = differences.mean(axis=0)
        # Without a step in common nothing is known of what they differ by, 0 least of all.
        runs = differences.mean(axis=1) if steps else np.full(pairs, np.nan)
        half95, half99 = (_half_width(differences, level) for level in (0.95, 0.99))
        overall, (all95, all99) = float(runs.mean()), (_interval(runs, q) for q in (0.95, 0.99))
        correlation = _correlation(values[:pairs].mean(axis=0), values[pairs:].mean(axis=0))

    def around(half: Floats | None, sign: int) -> Floats | None:
        return None if half is None else each + sign * half

    return Paired(
        a, b, pairs, steps, each,
        around(half95, -1), around(half95, 1), around(half99, -1), around(half99, 1),
        overall, all95, all99, correlation,
    )  # fmt: skip


def _interval(each: Floats, level: float) -> Interval | None:
    half = _half_width(each[:, None], level)
    middle = float(each.mean())
    return None if half is None else Interval(middle - float(half[0]), middle + float(half[0]))


def _half_width(rows: Floats, level: float) -> Floats | None:
    """Of the interval of the mean over rows; None for a single one, or without SciPy."""
    n = len(rows)
    if n < 2:
        return None
    try:
        from scipy import stats  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    quantile = float(stats.t.ppf((1 + level) / 2, n - 1))
    same = (rows == rows[0]).all(axis=0)
    std = np.where(same, 0.0, rows.std(axis=0, ddof=1))
    return np.asarray(quantile * std / np.sqrt(n), dtype=np.float64)


def _correlation(a: Floats, b: Floats) -> float | None:
    """Pearson's; None where one is constant, too short, or not finite."""
    if len(a) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    if (a == a[0]).all() or (b == b[0]).all():  # rounding may make something of their means
        return None
    a, b = (_centred(one) for one in (a, b))
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float(np.clip((a * b).sum() / size, -1.0, 1.0)) if size else None


def _centred(values: Floats) -> Floats:
    """Less their mean, and in [-2, 2], so that no square is too large or too small."""
    values = values / np.abs(values).max()
    values = values - values.mean()
    return np.asarray(values / np.abs(values).max(), dtype=np.float64)


def variance_ratio(seeded: Band, unseeded: Band) -> float | None:
    """Pooled variance of the seeded runs over that of the others, in the steps both have."""
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
    """Whether a ratio of variances is below 1 by more than chance, by a one-sided F test at 5%.

    The variances are pooled over steps that depend on one another, so only the runs count as
    degrees of freedom: the test is on the safe side. Without SciPy a ratio of 0 alone is smaller.
    """
    if ratio == 0:
        return True
    try:
        from scipy import stats  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return False
    return ratio < float(stats.f.ppf(_SMALLEST, seeded - 1, unseeded - 1))
