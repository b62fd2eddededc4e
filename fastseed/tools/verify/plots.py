"""The curves as a picture: every run, and the spread of the runs.

Uses figure objects and the Agg canvas only: no display, and no global state of matplotlib.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from .options import EXPERIMENTS
from .result import Floats, Report, Steps

# Colours of Okabe and Ito, which colour-blind people can distinguish.
_COLOURS = dict(zip(EXPERIMENTS, ("#0072B2", "#009E73", "#AA4499", "#D55E00"), strict=True))
_LOG = 50.0  # the axis is logarithmic if the largest loss over the smallest exceeds this


def png(report: Report) -> bytes:
    """Return the picture, 1200 x 1300 pixels; ImportError without matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 13), dpi=100, layout="constrained")
    figure.suptitle(f"{'PASSED' if report.passed else 'FAILED'}: {report.verdict}", fontsize=18)
    grid = figure.add_gridspec(3, 2)
    first: Any = None
    for i, name in enumerate(EXPERIMENTS):
        axes = figure.add_subplot(grid[i // 2, i % 2], sharex=first, sharey=first)
        first = first or axes
        axes.set_title(f"{name}: {len(report.of(name))} runs", loc="left")
        for run in report.of(name):
            x, values = _positions(report, run.curve.steps), _finite(run.curve.values)
            marker = "o" if len(values) == 1 else None
            axes.plot(x, values, color=_COLOURS[name], alpha=0.6, lw=1.1, marker=marker)
    spread = figure.add_subplot(grid[2, :])
    spread.set_title("mean, and 1, 2 and 3 standard deviations", loc="left")
    for name in ("unseeded", "uninterrupted"):
        if name in report.bands:
            band, colour = report.bands[name], _COLOURS[name]
            x = _positions(report, band.steps)
            for k in (3, 2, 1):
                low, high = _finite(band.mean - k * band.std), _finite(band.mean + k * band.std)
                spread.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
            spread.plot(x, _finite(band.mean), color=colour, lw=1.1, label=name)
    spread.legend(frameon=False)
    values = np.concatenate([run.curve.values for run in report.runs])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() / values.min() >= _LOG:
        first.set_yscale("log", nonpositive="mask")
        spread.set_yscale("log", nonpositive="clip")
    for axes in figure.axes:
        axes.set(xlabel="step", ylabel="loss")
        axes.grid(color="#dddddd", linewidth=0.6)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _positions(report: Report, steps: Steps) -> Floats:
    """Return where steps are on the axis: text is placed in the order of the first run."""
    if steps.dtype.kind != "U":
        return steps.astype(np.float64)
    at = {step: float(i) for i, step in enumerate(report.runs[0].curve.steps.tolist())}
    return np.array([at.get(step, np.nan) for step in steps.tolist()])


def _finite(values: Floats) -> Floats:
    """Return values that an axis can have: beyond 1e300 its limits overflow."""
    return np.where(np.isfinite(values), np.clip(values, -1e300, 1e300), np.nan)
